// `Lane` transfers an operation's bytes to the device and back while the device
// computes. It uses three streams, and two slots for everything that is cut
// along the batch.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "backends/cuda/device/cuda_device.h"

namespace convgrad::cuda {

// A tensor that crosses between host and device. Units: bytes.
struct Crossing {
  int64_t bytes = 0;    // of all slices
  bool is_cut = false;  // into equal, consecutive slices
};

struct LaneShape {
  int64_t slices = 1;
  std::vector<Crossing> operands;
  std::vector<Crossing> results;
  int64_t scratch_bytes = 0;  // on the device
};

// Locations of one slice's tensors and of the scratch on the device.
struct DeviceMemory {
  std::vector<void*> operands;
  std::vector<void*> results;
  std::byte* scratch = nullptr;
};

// Enqueues the work of a slice. All slices share scratch and uncut tensors.
using SliceWork = std::function<absl::Status(int64_t slice, const DeviceMemory&,
                                             cudaStream_t)>;

// Host memory of any kind, in the order of LaneShape.
struct HostMemory {
  std::vector<const void*> operands;
  std::vector<void*> results;
};

// Runs one operation at a time; other callers wait. Thread-safe.
class Lane {
 public:
  // Errors: as Device::Check.
  static absl::StatusOr<std::unique_ptr<Lane>> Make(Device* device);

  // Runs all slices; the results are complete when it returns OK. After an
  // error the lane no longer accesses host memory. Transfers use pinned memory
  // directly, and other memory through the lane's pinned buffer. Returns the
  // time of the work on the device.
  // Errors: kResourceExhausted if memory runs out (the lane stays usable),
  // kUnavailable after a sticky error, kInternal; those of `work`.
  absl::StatusOr<absl::Duration> Run(const LaneShape& shape,
                                     const HostMemory& host,
                                     const SliceWork& work);

 private:
  static constexpr int kSlots = 2;
  class Slices;

  struct Slot {
    Event uploaded, started, computed, downloaded;
  };

  explicit Lane(Device* device) : device_(device) {}
  absl::Status Reserve(int64_t device_bytes, int64_t pinned_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device* const device_;
  Mutex mutex_;
  Stream upload_, compute_, download_;
  std::array<Slot, kSlots> slots_;
  DeviceBuffer device_memory_ ABSL_GUARDED_BY(mutex_);
  PinnedBuffer pinned_memory_ ABSL_GUARDED_BY(mutex_);
  int64_t device_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t pinned_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad::cuda
