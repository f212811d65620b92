// `DeviceWatch` reports lost devices to log and health. The functions here
// describe the devices of backends.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "backends/registry.h"
#include "server/machine/background_thread.h"
#include "server/rpc/transport/readiness.h"
#include "server/scheduling/routing.h"
#include "server/scheduling/scheduler.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Calls `body` for each device of the backends that run here. Thread-safe.
void ForEachDevice(const std::vector<RegisteredBackend>& backends,
                   const std::function<void(const Backend&, int device)>& body);

// Returns the object that pins memory for the first backend that needs one;
// null if there is none. Thread-safe.
std::shared_ptr<MemoryPinner> PinnerOf(
    const std::vector<RegisteredBackend>& backends);

// Returns the gauges of all devices. Thread-safe.
std::vector<DeviceGauges> GaugesOf(
    const std::vector<RegisteredBackend>& backends, const Scheduler& scheduler);

// `DeviceWatch` reports each lost device to the log and to health.
// Thread-compatible.
class DeviceWatch {
 public:
  // Returns null if there are no devices. All arguments outlive it.
  static std::unique_ptr<DeviceWatch> Start(
      const std::vector<RegisteredBackend>* backends, const Router* router,
      Readiness* readiness);

 private:
  DeviceWatch(const std::vector<RegisteredBackend>* backends,
              const Router* router, Readiness* readiness);
  void Look();

  const std::vector<RegisteredBackend>& backends_;
  const Router& router_;
  Readiness& readiness_;
  std::set<std::pair<const Backend*, int>> told_;
  BackgroundThread thread_;
};

}  // namespace convgrad
