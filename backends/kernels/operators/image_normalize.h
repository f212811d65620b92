// The first step of many networks: images as bytes or floats become activations
// with a mean and a deviation taken out.
#pragma once

#include "absl/types/span.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// One number per channel.
struct ImageStatistics {
  absl::Span<const float> mean;
  absl::Span<const float> deviation;
};

// Writes (x - mean[c]) / deviation[c], in f32, rounded to result.dtype, padding
// as zeros. `image` has any dtype but kI64; with blocks of one channel it is
// (N, C, spatial) row by row. The gradient is the same with a mean of zeros,
// from the result's shape to the image's. Requires: the same batch, channels
// and spatial. Thread-safe; the buffers don't overlap.
void NormalizeImage(const ChannelBlocks& image, const void* x,
                    const ImageStatistics& statistics,
                    const ChannelBlocks& result, void* y, RunParts run);

}  // namespace convgrad
