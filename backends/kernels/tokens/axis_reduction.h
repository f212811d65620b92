// `ReduceAxes` computes sums, means, maxima, norms and variances over any axes
// of a tensor.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

enum class Reduction { kSum, kMean, kMaximum, kNorm, kVariance };

// A reduction of row-major tensors.
struct AxisReduction {
  Reduction kind = Reduction::kSum;
  Dims dims;  // of the operand
  Dims kept;  // the same, with extent 1 along the axes that are reduced
  DataType dtype = DataType::kF32;  // kF32 or kBF16
  // Number that a variance subtracts from the number of its elements.
  int64_t correction = 0;
};

// Writes the reduction of `x` to `y`, whose dims are `kept`. Sums are in f64,
// in the elements' order, and rounded once. NaN counts as the largest number.
//
// Both functions are thread-safe. Buffers are aligned to their elements.
void ReduceAxes(const AxisReduction& reduction, const void* x, void* y,
                RunParts run);

// Arguments for dx of ReduceAxes. Equal maxima share their gradient; a norm of
// 0 has the gradient 0.
struct ReductionGradient {
  const void* x;
  const void* y;
  const void* dy;
  void* dx;
};
void ReduceAxesGradient(const AxisReduction& reduction,
                        const ReductionGradient& tensors, RunParts run);

}  // namespace convgrad
