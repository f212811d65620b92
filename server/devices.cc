#include "server/devices.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backends/core/steady_now.h"
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
    devices_.push_back({&backend, device});
  });
  if (devices_.empty()) return;
  states_.resize(devices_.size());
  Read();
  reader_ =
      std::make_unique<BackgroundThread>(absl::Seconds(1), [this] { Read(); });
}

void DeviceWatch::Read() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    DeviceState state = devices_[i].backend->StateOf(devices_[i].index);
    MutexLock lock(&mutex_);
    states_[i] = std::move(state);
  }
}

DeviceState DeviceWatch::StateOf(size_t i) const {
  MutexLock lock(&mutex_);
  return states_[i];
}

void DeviceWatch::ForEach(
    absl::FunctionRef<void(const Backend&, int device, const DeviceState&)>
        body) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    DeviceState state = StateOf(i);
    state.is_lost = device.backend->IsLost(device.index);
    body(*device.backend, device.index, state);
  }
}

bool DeviceWatch::DriversAnswer(absl::Duration patience) {
  if (reader_ == nullptr) return true;
  const absl::Time end = SteadyNow() + patience;
  reader_->Post([this] { Read(); });
  while (!reader_->is_idle()) {
    if (SteadyNow() >= end) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

void DeviceWatch::Look(Readiness* readiness) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    if (device.is_told || !device.backend->IsLost(device.index)) continue;
    device.is_told = true;
    spdlog::error("{} lost device {}: {}", std::string(device.backend->name()),
                  device.index, StateOf(i).description);
    readiness->OnDeviceLost(router_.CanServe());
  }
}

}  // namespace convgrad
