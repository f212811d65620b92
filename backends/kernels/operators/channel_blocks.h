// `ChannelBlocks` describes activations whose channels are contiguous, as the
// kernels of networks read and write them.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "backends/core/data_type.h"

namespace convgrad {

// The shape and layout of an activation (N, C, spatial...). Channels are in
// blocks, such as nChw16c with a padded last block, or channels last, i.e. one
// block of all channels. Element (n, c, s) has the offset
//     ((n * block_count() + c / block) * spatial + s) * block + c % block.
// Kernels require that padding is zero in their operands, and write zeros to
// the padding of results. Batch and spatial may be 0; channels and block are at
// least 1.
struct ChannelBlocks {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t spatial = 0;  // product of the spatial extents, 1 without any
  int64_t block = 1;    // 8, 16, or `channels`: channels last
  DataType dtype = DataType::kF32;  // kF32 or kBF16; arithmetic is in f32

  int64_t block_count() const { return (channels + block - 1) / block; }
  int64_t padded_channels() const { return block_count() * block; }
  // Elements, padding included.
  int64_t size() const { return batch * padded_channels() * spatial; }
  int64_t bytes() const { return size() * ByteSizeOf(dtype); }
};

// A parallel loop: calls its second argument once with each part in [0, count),
// on any threads in any order, and returns when all calls have ended.
//
// Kernels cut their work by shape alone, and add the parts' sums in the order
// of the parts. So a result's bits depend neither on the number of threads nor
// on the threads' timing. They may differ between CPUs with and without fused
// multiply-add.
using RunParts =
    absl::FunctionRef<void(int64_t count, absl::FunctionRef<void(int64_t)>)>;

}  // namespace convgrad
