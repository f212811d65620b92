#include "server/devices.h"

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

DeviceWatch::DeviceWatch(const std::vector<RegisteredBackend>& backends,
                         const Router* router)
    : router_(*router) {
  ForEachDevice(backends, [this](const Backend& backend, int device) {
    devices_.push_back({&backend, device, backend.StateOf(device).description});
  });
}

void DeviceWatch::Look(Readiness* readiness) {
  for (Device& device : devices_) {
    if (device.is_told || !device.backend->IsLost(device.index)) continue;
    device.is_told = true;
    spdlog::error("{} lost device {}: {}", std::string(device.backend->name()),
                  device.index, device.description);
    readiness->OnDeviceLost(router_.CanServe());
  }
}

}  // namespace convgrad
