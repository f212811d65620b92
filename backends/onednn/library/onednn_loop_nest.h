// A loop over the elements of one tensor in memory order, with the offsets of
// others that share its logical dims or are broadcast along some of them. Axes
// that all tensors pass over evenly are merged, so that tensors of one layout
// become a single run.
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
  int part;  // which part of the split this is
  int64_t length;
  std::array<int64_t, kMaxTensors> offset;
  std::array<int64_t, kMaxTensors> stride;
};

class LoopNest {
 public:
  // `strides[t]` are tensor t's along each of `dims`, 0 where it is broadcast;
  // tensor 0 is dense and gives the order. At most kMaxTensors.
  LoopNest(const Dims& dims, absl::Span<const Dims> strides);

  // Calls `body` for every run. The split depends on the nest and `threads`.
  void ForEachRun(int threads, absl::FunctionRef<void(const Run&)> body) const;

  // Returns an upper bound of the parts that ForEachRun makes.
  int PartCount(int threads) const;

 private:
  // Sets the offsets of the `outer`-th run.
  void Seek(int64_t outer, Run* run) const;
  bool SplitsRuns(int threads) const;

  Dims extents_;  // outermost first, without the run
  int64_t outer_count_ = 1;
  int64_t run_length_ = 1;
  int tensors_;
  std::array<Dims, kMaxTensors> strides_;  // of extents_
  std::array<int64_t, kMaxTensors> run_stride_ = {};
};

// Returns the strides of `tensor`, whose dims broadcast to `dims` (axis 1: the
// same element all along).
Dims BroadcastStrides(const Dims& tensor, const Dims& dims);

}  // namespace convgrad::onednn
