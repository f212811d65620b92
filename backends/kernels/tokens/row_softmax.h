// softmax and log_softmax along one axis.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// A tensor of dims (outer, length, inner), row-major. Each row, the elements
// that differ in the middle axis alone, is normalized by itself.
struct RowSoftmax {
  int64_t outer = 0;
  int64_t length = 1;
  int64_t inner = 1;
  DataType dtype = DataType::kF32;  // kF32 or kBF16
  bool is_logarithm = false;        // log_softmax
};

// y = e^x / sum(e^x), or its logarithm. A row with NaN or +Inf, or of -Inf
// alone, becomes NaN, as in PyTorch.
//
// Thread-safe, as is the other function; buffers need no alignment. The results
// may be written in place of an operand.
void SoftmaxRows(const RowSoftmax& softmax, const void* x, void* y,
                 RunParts run);

// dx of the above from the gradient `dy` and the result `y`.
void SoftmaxRowsBackward(const RowSoftmax& softmax, const void* dy,
                         const void* y, void* dx, RunParts run);

}  // namespace convgrad
