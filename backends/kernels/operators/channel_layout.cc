#include "backends/kernels/operators/channel_layout.h"

namespace convgrad {

PhysicalLayout SliceLayout(const ChannelBlocks& blocks, int64_t first,
                           int64_t count) {
  const int64_t plane = blocks.spatial * blocks.block;
  PhysicalAxis channels{.extent = count, .stride = 1, .first = first};
  if (blocks.block == 1) {
    channels.stride = plane;
  } else if (blocks.block != blocks.channels) {
    channels.block = blocks.block;
    channels.block_stride = plane;
    const bool is_last = first + count == blocks.channels;
    channels.padded = is_last ? blocks.padded_channels() - first : count;
  }
  return {{PhysicalAxis{.extent = blocks.batch,
                        .stride = blocks.block_count() * plane},
           channels,
           PhysicalAxis{.extent = blocks.spatial, .stride = blocks.block}}};
}

}  // namespace convgrad
