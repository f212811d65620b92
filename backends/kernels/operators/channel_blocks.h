// Activations whose channels lie side by side, as the kernels of networks read
// and write them.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "backends/core/data_type.h"

namespace convgrad {

// The shape and layout of an activation (N, C, spatial...): channels in blocks
// (nChw16c and its like, whose last block is padded), or channels last, which
// is one block of all channels. Element (n, c, s) lies at
//     ((n * block_count() + c / block) * spatial + s) * block + c % block.
// Padding is zero in what kernels read, and they write it as zero. Batch and
// spatial may be 0, channels and block are at least 1.
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

// Calls its second argument once with each part in [0, count), on any threads
// in any order, and returns when all are done: a team's parallel loop.
//
// Kernels cut their work by shape alone, and add what the parts have summed in
// the parts' order: a result's bits depend neither on the number of threads nor
// on which one does what. They may differ between CPUs with and without fused
// multiply-add.
using RunParts =
    absl::FunctionRef<void(int64_t count, absl::FunctionRef<void(int64_t)>)>;

}  // namespace convgrad
