// `DeviceWatch` reports lost devices to log and health. The functions here
// describe the devices of backends.
#pragma once

#include <functional>
#include <memory>
#include <string>
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
  // Describes the devices now, because the driver may not answer when one is
  // lost. The arguments outlive this.
  DeviceWatch(const std::vector<RegisteredBackend>& backends,
              const Router* router);

  // Reports the devices that were lost since the last call. Doesn't wait for a
  // device.
  void Look(Readiness* readiness);

 private:
  struct Device {
    const Backend* backend;
    int index;
    std::string description;
    bool is_told = false;
  };

  const Router& router_;
  std::vector<Device> devices_;
};

}  // namespace convgrad
