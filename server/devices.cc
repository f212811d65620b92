#include "server/devices.h"

#include <string>

#include "spdlog/spdlog.h"

namespace convgrad {

void ForEachDevice(
    const std::vector<RegisteredBackend>& backends,
    const std::function<void(const Backend&, int device)>& body) {
  for (const RegisteredBackend& entry : backends) {
    if (!entry.backend.ok()) continue;
    const Backend& backend = **entry.backend;
    for (int i = 0; i < backend.device_count(); ++i) body(backend, i);
  }
}

std::shared_ptr<MemoryPinner> PinnerOf(
    const std::vector<RegisteredBackend>& backends) {
  for (const RegisteredBackend& entry : backends) {
    if (!entry.backend.ok()) continue;
    if (auto pinner = (*entry.backend)->pinner()) return pinner;
  }
  return nullptr;
}

void DeviceWatch::Look(Readiness* readiness) {
  ForEachDevice(backends_, [&](const Backend& backend, int device) {
    if (!backend.IsLost(device) || !told_.emplace(&backend, device).second) {
      return;
    }
    spdlog::error("{} lost device {}: {}", std::string(backend.name()), device,
                  backend.StateOf(device).description);
    readiness->OnDeviceLost(router_.CanServe());
  });
}

}  // namespace convgrad
