// `LoopNest` loops over the elements of one tensor in memory order. It also
// computes the offsets of another tensor with the same logical dims, or
// broadcast along some of them. It merges axes that are contiguous in both
// tensors, so that tensors of one layout become a single run.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/copies/strided_copy.h"

namespace convgrad::onednn {

// Smallest part of a loop that saves more than it costs to start: a team start
// takes about 5 us, the time for this many elements at 4 GB/s.
inline constexpr int64_t kGrainElements = 8192;

// Returns loops over a tensor in memory order, outermost first, merged. The
// strides are those of LoopNest.
StridedLoops LoopsInMemory(const Dims& dims, const Dims& strides,
                           const Dims& others);

// One innermost run: for i in [0, length), the tensor's element is at offset +
// i, and the other tensor's at other + i * stride. Units: elements.
struct Run {
  int part;  // index of the part that contains the run
  int64_t length;
  int64_t offset, other;
  int64_t stride;
};

class LoopNest {
 public:
  // `strides` and `others` are those of the tensor and of the other one along
  // each of `dims`, 0 along broadcast axes of the other one. The tensor is
  // dense.
  LoopNest(const Dims& dims, const Dims& strides, const Dims& others);

  // Calls `body` for every run. The split depends only on the nest and
  // `threads`.
  void ForEachRun(int threads, absl::FunctionRef<void(const Run&)> body) const;

  // Returns an upper bound on the number of parts in ForEachRun.
  int PartCount(int threads) const;

 private:
  // Returns the `outer`-th run.
  Run RunAt(int64_t outer) const;
  bool SplitsRuns(int threads) const;

  StridedLoops loops_;  // outermost first, without the run
  StridedLoop run_ = {1, 0, 0};
  int64_t outer_count_ = 1;
};

}  // namespace convgrad::onednn
