// Activations in blocks of channels as Reorder (reorder.h) sees them: copies
// between blocks and plain tensors, and of some of the channels.
#pragma once

#include "backends/core/physical_layout.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// Returns where the elements (image, channel, position) lie, for channels
// [first, first + count). As a destination of the last channels it has its
// padding cleared.
//
// A concatenation is one Reorder for each operand into its slice of the result,
// its gradient one from each slice. Flattening is a Reorder to blocks of one
// channel, which is (N, C, spatial) row by row.
PhysicalLayout SliceLayout(const ChannelBlocks& blocks, int64_t first,
                           int64_t count);

}  // namespace convgrad
