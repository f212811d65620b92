// Computes softmax and log_softmax along one axis.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// A row-major tensor of dims (outer, length, inner). A row has the elements
// that differ only in the middle axis; each row is normalized separately.
struct RowSoftmax {
  int64_t outer = 0;
  int64_t length = 1;
  int64_t inner = 1;
  DataType dtype = DataType::kF32;  // kF32 or kBF16
  bool is_logarithm = false;        // log_softmax
};

// Writes y = e^x / sum(e^x), or its logarithm. As in PyTorch, a row becomes NaN
// if it contains NaN or +Inf, or only -Inf.
//
// Both functions are thread-safe. Buffers need no alignment. A result may be
// written in place of an operand.
void SoftmaxRows(const RowSoftmax& softmax, const void* x, void* y,
                 RunParts run);

// Writes dx of SoftmaxRows, from the gradient `dy` and the result `y`.
void SoftmaxRowsBackward(const RowSoftmax& softmax, const void* dy,
                         const void* y, void* dx, RunParts run);

}  // namespace convgrad
