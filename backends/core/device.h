// What the server may know of a backend's devices, if it has any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace convgrad {

// A device that computes beside the machine's cores. Units: bytes.
struct DeviceState {
  std::string description;  // e.g. "NVIDIA H200, sm_90"
  // An error took it out: only a new process brings it back.
  bool is_lost = false;
  // Unset: the machine has nothing that tells.
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> memory_used_bytes;  // by all processes
  std::optional<double> utilization;         // 0 to 1, of the last moments
};

// Lets devices read and write host memory without a copy on the way.
// Thread-safe.
class MemoryPinner {
 public:
  virtual ~MemoryPinner() = default;

  // Returns whether it worked; the memory can be used either way. Requires:
  // whole pages.
  virtual bool Pin(void* data, int64_t bytes) = 0;
  // Requires: Pin(data) worked.
  virtual void Unpin(void* data) = 0;
};

// How fast a backend is, roughly: what predictions start from.
struct Rates {
  // 2 x multiply-adds a second, by DataType.
  std::array<double, 3> flops = {1e10, 1e10, 1e10};
  // Bytes a second between host and device; 0 if nothing crosses.
  double transfer_bytes = 0;
  // Of a call that does next to nothing.
  absl::Duration overhead;
};

}  // namespace convgrad
