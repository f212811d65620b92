// Defines what the server knows about a backend's devices.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace convgrad {

// The state of a device that computes beside the machine's cores. Units: bytes.
struct DeviceState {
  std::string description;  // e.g. "NVIDIA H200, sm_90"
  // True if an error has made it unusable until the process restarts.
  bool is_lost = false;
  // Unset if the machine has no driver interface that reports it.
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> memory_used_bytes;  // by all processes
  std::optional<double> utilization;         // 0 to 1, most recent
};

// `MemoryPinner` pins host memory, so that devices access it without an
// intermediate copy. Thread-safe.
class MemoryPinner {
 public:
  virtual ~MemoryPinner() = default;

  // Returns whether pinning succeeded; the memory is usable in either case.
  // Requires: whole pages.
  virtual bool Pin(void* data, int64_t bytes) = 0;
  // Requires: Pin(data) succeeded.
  virtual void Unpin(void* data) = 0;
};

// Estimated speed of a backend, the initial values of predictions.
struct Rates {
  // 2 x multiply-adds per second, by DataType.
  std::array<double, 3> flops = {1e10, 1e10, 1e10};
  // Bytes per second between host and device; 0 if no data crosses.
  double transfer_bytes = 0;
  // Duration of a call with almost no work.
  absl::Duration overhead;
};

}  // namespace convgrad
