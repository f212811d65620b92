// `LoopNest` loops over the elements of one tensor in memory order. It also
// computes the offsets of other tensors with the same logical dims, or
// broadcast along some of them. It merges axes that are contiguous in all
// tensors, so that tensors of one layout become a single run.
#pragma once

#include <array>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad::onednn {

inline constexpr int kMaxTensors = 3;

// One innermost run: for i in [0, length), tensor t's element is at
// offset[t] + i * stride[t]. Units: elements.
struct Run {
  int part;  // index of the part that contains the run
  int64_t length;
  std::array<int64_t, kMaxTensors> offset;
  std::array<int64_t, kMaxTensors> stride;
};

class LoopNest {
 public:
  // `strides[t]` are tensor t's along each of `dims`, 0 along broadcast axes.
  // Tensor 0 is dense and determines the order. At most kMaxTensors.
  LoopNest(const Dims& dims, absl::Span<const Dims> strides);

  // Calls `body` for every run. The split depends only on the nest and
  // `threads`.
  void ForEachRun(int threads, absl::FunctionRef<void(const Run&)> body) const;

  // Returns an upper bound on the number of parts in ForEachRun.
  int PartCount(int threads) const;

 private:
  // Sets `run` to the `outer`-th run.
  void Seek(int64_t outer, Run* run) const;
  bool SplitsRuns(int threads) const;

  Dims extents_;  // outermost first, without the run's axis
  int64_t outer_count_ = 1;
  int64_t run_length_ = 1;
  int tensors_;
  std::array<Dims, kMaxTensors> strides_;  // along extents_
  std::array<int64_t, kMaxTensors> run_stride_ = {};
};

}  // namespace convgrad::onednn
