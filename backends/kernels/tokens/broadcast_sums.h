// `SumBroadcast` sums over the axes along which an operand was broadcast.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// Writes the sums of `from`, a row-major tensor of dims `dims`, to `to`, a
// row-major tensor of the same rank with extent 1 along the summed axes. Sums
// are in f64, in the elements' order, and rounded once. Requires: kF32 or
// kBF16; ranks of at least 1.
//
// Thread-safe; buffers need no alignment.
void SumBroadcast(const Dims& dims, const void* from, const Dims& to_dims,
                  void* to, DataType dtype, RunParts run);

}  // namespace convgrad
