// `GatherAxes` copies elements by an index table for each axis, for pads and
// selections.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/data_type.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// One axis of a gather.
struct GatherAxis {
  int64_t in, out;
  // For each index of the result, the index in the operand; -1: the fill. Null:
  // the indices are equal.
  const int64_t* sources = nullptr;
  // The list that ListResults made from `sources`; only for gradients.
  const int64_t* results = nullptr;
};

// Returns how many numbers ListResults writes.
inline int64_t ResultListSize(const GatherAxis& axis) {
  return axis.in + 1 + axis.out;
}
// Writes the inverse of `sources`: for each index of the operand the begin of
// its results in the list, then the results, in ascending order.
void ListResults(const GatherAxis& axis, int64_t* list);

// A gather of row-major tensors.
struct AxisGather {
  std::vector<GatherAxis> axes;
  DataType dtype = DataType::kF32;  // kF32 or kBF16
};

// y[i, j, ...] = x[sources of i, sources of j, ...], or `fill` if one of them
// is -1. Copies bits.
//
// Both functions are thread-safe. Buffers are aligned to their elements.
void GatherAxes(const AxisGather& gather, const void* x, float fill, void* y,
                RunParts run);

// Writes dx: for each element the sum of dy over its copies, in the order of
// dy, in f64, rounded once. Requires: both `results` and `sources`.
void SumGathered(const AxisGather& gather, const void* dy, void* dx,
                 RunParts run);

}  // namespace convgrad
