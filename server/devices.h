// `DeviceWatch` reads the states of devices and reports lost ones to log and
// health. The functions here describe the devices of backends.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "backends/registry.h"
#include "server/machine/background_thread.h"
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

// `DeviceWatch` reads the states of devices on a thread of its own, because a
// driver may not answer. The constructor and the destructor wait for drivers.
// Thread-safe.
class DeviceWatch {
 public:
  // Reads the states now, and then each second. The arguments outlive this.
  DeviceWatch(const std::vector<RegisteredBackend>& backends,
              const Router* router);

  // Calls `body` for each device. The state is that of the last read, except
  // `is_lost`, which is up to date.
  void ForEach(
      absl::FunctionRef<void(const Backend&, int device, const DeviceState&)>
          body) const;

  // Reads the states again. Returns false if that takes longer than `patience`.
  // Then the destructor may block for ever.
  bool DriversAnswer(absl::Duration patience);

  // Reports the devices that were lost since the last call. Only one thread may
  // call it.
  void Look(Readiness* readiness);

 private:
  struct Device {
    const Backend* backend;
    int index;
    bool is_told = false;
  };

  DeviceState StateOf(size_t i) const;
  void Read();

  const Router& router_;
  std::vector<Device> devices_;
  mutable Mutex mutex_;
  std::vector<DeviceState> states_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<BackgroundThread> reader_;  // Null without devices.
};

}  // namespace convgrad
