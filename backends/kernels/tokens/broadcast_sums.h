// Sums over the axes along which an operand was broadcast.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// Adds up the elements of `from`, a row-major tensor of dims `dims`, to each
// element of `to`, a row-major tensor of the same rank with extent 1 along the
// axes that are summed over. Sums are in f64, rounded once, in the elements'
// order. Requires: kF32 or kBF16; ranks of at least 1.
//
// Thread-safe; buffers need no alignment.
void SumBroadcast(const Dims& dims, const void* from, const Dims& to_dims,
                  void* to, DataType dtype, RunParts run);

}  // namespace convgrad
