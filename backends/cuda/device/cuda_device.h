// `DeviceCalls` is a thin layer over the CUDA runtime, which tests replace by a
// device that computes nothing. `Device` and move-only handles use it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/device.h"
#include "cuda_runtime_api.h"

namespace convgrad::cuda {

// Each function is one call of the CUDA runtime, on the device for which the
// object was made. Thread-safe.
class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;

  virtual cudaError_t Allocate(void** memory, size_t bytes) = 0;
  virtual cudaError_t Free(void* memory) = 0;
  virtual cudaError_t AllocatePinned(void** memory, size_t bytes) = 0;
  virtual cudaError_t FreePinned(void* memory) = 0;
  // Returns whether a transfer can use the memory without a copy.
  virtual bool IsPinned(const void* memory) = 0;
  virtual cudaError_t CreateStream(cudaStream_t* stream) = 0;
  virtual cudaError_t DestroyStream(cudaStream_t stream) = 0;
  // `timed`: Elapsed can use the event.
  virtual cudaError_t CreateEvent(cudaEvent_t* event, bool timed) = 0;
  virtual cudaError_t DestroyEvent(cudaEvent_t event) = 0;
  virtual cudaError_t Record(cudaEvent_t event, cudaStream_t stream) = 0;
  // Requires: both events have completed.
  virtual cudaError_t Elapsed(float* milliseconds, cudaEvent_t begin,
                              cudaEvent_t end) = 0;
  // Makes the stream wait for the event.
  virtual cudaError_t Await(cudaStream_t stream, cudaEvent_t event) = 0;
  // Block the calling thread.
  virtual cudaError_t Synchronize(cudaEvent_t event) = 0;
  virtual cudaError_t Synchronize(cudaStream_t stream) = 0;
  virtual cudaError_t Upload(void* device, const void* pinned, size_t bytes,
                             cudaStream_t stream) = 0;
  virtual cudaError_t Download(void* pinned, const void* device, size_t bytes,
                               cudaStream_t stream) = 0;
  // Selects the device for the calling thread.
  virtual cudaError_t Select() = 0;
};

// Returns the calls of device `index`. Requires: it exists.
std::unique_ptr<DeviceCalls> MakeDeviceCalls(int index);

struct DeviceInfo {
  std::string description;  // e.g. "NVIDIA H200, sm_90"
  std::string pci_bus_id;
  Rates rates;
};

// Returns the devices of the same model as the first one, by index; all of them
// compute the same bits. Errors: kFailedPrecondition "no CUDA device".
absl::StatusOr<std::map<int, DeviceInfo>> ListDevices();

// A device that is usable until a sticky error. Thread-safe.
class Device {
 public:
  explicit Device(std::unique_ptr<DeviceCalls> calls)
      : calls_(std::move(calls)) {}

  DeviceCalls& calls() const { return *calls_; }

  // Converts `error`. Errors: as StatusOf; a sticky error makes the device
  // permanently unusable.
  absl::Status Check(cudaError_t error, absl::string_view what);

  // Errors: kUnavailable after a sticky error.
  absl::Status CheckUsable() const;
  bool is_lost() const { return is_lost_; }

 private:
  const std::unique_ptr<DeviceCalls> calls_;
  std::atomic<bool> is_lost_ = false;
};

// Releases a handle. Ignores errors: if the device can't release it, an earlier
// call has failed and reported it.
template <auto kRelease>
struct Releaser {
  DeviceCalls* calls = nullptr;
  template <typename T>
  void operator()(T* handle) const {
    (void)(calls->*kRelease)(handle);
  }
};

using DeviceBuffer = std::unique_ptr<void, Releaser<&DeviceCalls::Free>>;
using PinnedBuffer = std::unique_ptr<void, Releaser<&DeviceCalls::FreePinned>>;
using Stream =
    std::unique_ptr<CUstream_st, Releaser<&DeviceCalls::DestroyStream>>;
using Event = std::unique_ptr<CUevent_st, Releaser<&DeviceCalls::DestroyEvent>>;

// Errors: as Device::Check.
absl::StatusOr<DeviceBuffer> AllocateDevice(Device* device, int64_t bytes);
absl::StatusOr<PinnedBuffer> AllocatePinned(Device* device, int64_t bytes);
absl::StatusOr<Stream> CreateStream(Device* device);
absl::StatusOr<Event> CreateEvent(Device* device, bool timed);

}  // namespace convgrad::cuda
