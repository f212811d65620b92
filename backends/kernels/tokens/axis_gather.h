// Copies whose elements follow from tables, axis by axis: pads and selections.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/data_type.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// One axis of a gather.
struct GatherAxis {
  int64_t in, out;
  // By index of the result, the index in the operand; -1: the fill. Null: both
  // are the same.
  const int64_t* sources = nullptr;
  // What ListResults has written of `sources`, for gradients.
  const int64_t* results = nullptr;
};

// Returns how many numbers ListResults writes.
inline int64_t ResultListSize(const GatherAxis& axis) {
  return axis.in + 1 + axis.out;
}
// Writes for each index of the operand where its results begin in the list, and
// behind the beginnings the results, ascending.
void ListResults(const GatherAxis& axis, int64_t* list);

// A gather of row-major tensors.
struct AxisGather {
  std::vector<GatherAxis> axes;
  DataType dtype = DataType::kF32;  // kF32 or kBF16
};

// y[i, j, ...] = x[sources of i, sources of j, ...], or `fill` if one of them
// is -1. Copies bits.
//
// Thread-safe, as is the other function. Buffers are aligned to their elements.
void GatherAxes(const AxisGather& gather, const void* x, float fill, void* y,
                RunParts run);

// dx = the sums of the elements of dy that were gathered from each element, in
// the order of dy, in f64, rounded once. Requires: `results` beside `sources`.
void SumGathered(const AxisGather& gather, const void* dy, void* dx,
                 RunParts run);

}  // namespace convgrad
