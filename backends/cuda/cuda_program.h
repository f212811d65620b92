// `Program` holds a plan's steps, ready to be enqueued: kernels, graphs and
// memsets over operands, results and one scratch area on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/device/cuda_device.h"
#include "backends/cuda/device/cuda_lane.h"

namespace convgrad::cuda {

// The location of some bytes at run time.
struct Location {
  enum class Area { kOperand, kResult, kScratch };
  Area area = Area::kScratch;
  int index = 0;  // position in DeviceMemory's lists; 0 for scratch
  int64_t byte_offset = 0;

  friend bool operator==(const Location&, const Location&) = default;
};

void* AddressOf(const DeviceMemory& memory, const Location& location);

// Built once, then immutable.
class Program {
 public:
  // The arguments with which a step is enqueued.
  struct Context {
    Device* device;
    const GraphTarget* target;
    const DeviceMemory* memory;
    cudaStream_t stream;

    void* At(const Location& location) const {
      return AddressOf(*memory, location);
    }
  };
  using Step = std::function<absl::Status(const Context&)>;

  // Reserves scratch, aligned to 256 bytes.
  Location Allocate(int64_t bytes);

  void Add(Step step) { steps_.push_back(std::move(step)); }
  void AddZero(Location location, int64_t bytes);

  int64_t scratch_bytes() const { return scratch_bytes_; }
  int64_t step_count() const { return static_cast<int64_t>(steps_.size()); }

  // Enqueues all steps. Errors: kInternal, kUnavailable.
  absl::Status Enqueue(const Context& context) const;

 private:
  std::vector<Step> steps_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace convgrad::cuda
