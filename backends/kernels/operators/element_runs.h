// `RunOverRows` applies a function of single elements to an activation.
#pragma once

#include <cstdint>
#include <cstring>

#include "backends/kernels/operators/channel_rows.h"

namespace convgrad {

// Writes zeros to the padding of `y`.
inline void ClearPadding(const ChannelBlocks& blocks, void* y, RunParts run) {
  const int64_t size = ByteSizeOf(blocks.dtype);
  const int64_t padding = blocks.padded_channels() - blocks.channels;
  run(blocks.batch, [&](int64_t image) {
    const int64_t end =
        (image + 1) * blocks.padded_channels() * blocks.spatial * size;
    char* last = static_cast<char*>(y) + end;
    for (int64_t row = 0; row < blocks.spatial; ++row) {
      std::memset(last - row * blocks.block * size - padding * size, 0,
                  padding * size);
    }
  });
}

// The operands and the result of a kernel.
template <class Tensors>
struct Written {
  const Tensors& tensors;
  void* y;
};

// Calls kernel(cut, tensors, rows) for all rows. `cut` is `blocks`, or
// InOnePlane(blocks) if the kernel doesn't depend on the rows' image and
// channels. `zeros` point to one zero element each. If the kernel doesn't map
// them to zero, it writes other numbers to the padding, so this function clears
// the padding.
template <class Kernel, class Tensors>
void RunOverRows(const ChannelBlocks& blocks, const ChannelBlocks& cut,
                 const Kernel& kernel, const Written<Tensors>& written,
                 const Written<Tensors>& zeros, RunParts run) {
  const MemoryParts parts(cut);
  run(parts.count(), [&](int64_t part) {
    parts.ForEachRun(
        part, [&](const RowRun& rows) { kernel(cut, written.tensors, rows); });
  });
  if (blocks.padded_channels() == blocks.channels) return;
  const ChannelBlocks element = {1, 1, 1, 1, DataType::kF32};
  kernel(element, zeros.tensors,
         RowRun{.offset = 0, .rows = 1, .image = 0, .block_index = 0});
  const bool keeps_zero = *static_cast<const float*>(zeros.y) == 0;
  if (!keeps_zero) ClearPadding(blocks, written.y, run);
}

}  // namespace convgrad
