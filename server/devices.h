// `DeviceWatch` reports lost devices to log and health. The functions here
// describe the devices of backends.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "backends/registry.h"
#include "server/rpc/transport/readiness.h"
#include "server/scheduling/routing.h"

namespace convgrad {

// Calls `body` for each device of the backends that run here. Thread-safe.
void ForEachDevice(const std::vector<RegisteredBackend>& backends,
                   const std::function<void(const Backend&, int device)>& body);

// Returns the object that pins memory for the first backend that needs one;
// null if there is none. Thread-safe.
std::shared_ptr<MemoryPinner> PinnerOf(
    const std::vector<RegisteredBackend>& backends);

// `DeviceWatch` reports each lost device to the log and to health.
// Thread-compatible.
class DeviceWatch {
 public:
  // The arguments outlive it.
  DeviceWatch(const std::vector<RegisteredBackend>* backends,
              const Router* router)
      : backends_(*backends), router_(*router) {}

  // Reports the devices that were lost since the last call.
  void Look(Readiness* readiness);

 private:
  const std::vector<RegisteredBackend>& backends_;
  const Router& router_;
  std::set<std::pair<const Backend*, int>> told_;
};

}  // namespace convgrad
