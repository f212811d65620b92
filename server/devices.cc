#include "server/devices.h"

#include <string>

#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(500);

}  // namespace

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

std::vector<DeviceGauges> GaugesOf(
    const std::vector<RegisteredBackend>& backends,
    const Scheduler& scheduler) {
  std::vector<DeviceGauges> gauges;
  ForEachDevice(backends, [&](const Backend& backend, int device) {
    gauges.push_back({std::string(backend.name()), device,
                      backend.StateOf(device), scheduler.queue_depth(backend)});
  });
  return gauges;
}

std::unique_ptr<DeviceWatch> DeviceWatch::Start(
    const std::vector<RegisteredBackend>* backends, const Router* router,
    Readiness* readiness) {
  bool has_devices = false;
  ForEachDevice(*backends, [&](const Backend&, int) { has_devices = true; });
  if (!has_devices) return nullptr;
  return std::unique_ptr<DeviceWatch>(
      new DeviceWatch(backends, router, readiness));
}

DeviceWatch::DeviceWatch(const std::vector<RegisteredBackend>* backends,
                         const Router* router, Readiness* readiness)
    : backends_(*backends),
      router_(*router),
      readiness_(*readiness),
      thread_(kPeriod, [this] { Look(); }) {}

void DeviceWatch::Look() {
  ForEachDevice(backends_, [this](const Backend& backend, int device) {
    if (!backend.IsLost(device) || !told_.emplace(&backend, device).second) {
      return;
    }
    spdlog::error("{} lost device {}: {}", std::string(backend.name()), device,
                  backend.StateOf(device).description);
    readiness_.OnDeviceLost(router_.CanServe());
  });
}

}  // namespace convgrad
