// Divides the work and the weights of a convolution of sequences. A *panel* is
// two blocks of output channels, or the last one alone.
#pragma once

#include <cstdint>

#include "backends/kernels/convolutions/sequence_convolution.h"

namespace convgrad {

// Outputs that are computed together, so that they stay in a core's caches.
inline constexpr int64_t kSequenceChunk = 256;
// Products that a gradient's sum begins with.
inline constexpr int64_t kSequenceShortSum = 128;

inline int64_t PanelsOf(const SequenceShape& shape) {
  return (shape.out_blocks() + 1) / 2;
}
inline int64_t ChunksOf(const SequenceShape& shape) {
  return (shape.axis.out + kSequenceChunk - 1) / kSequenceChunk;
}

// Returns how many blocks of input channels are summed before the next ones, so
// that their weights stay in a core's second cache.
int64_t SliceOf(const SequenceShape& shape);

// Arranged weights: panel, block of input channels, tap, input channel, output
// channel of the panel. Then the bias, with 0 for padding.
struct SequencePanel {
  SequencePanel(const SequenceShape& shape, int64_t panel);

  int64_t first_block;
  int64_t blocks;   // 1 or 2
  int64_t weights;  // offset of the first
};
int64_t BiasOffset(const SequenceShape& shape);

// Sums of a gradient: panel, block of input channels, tap, block of the panel,
// input channel, output channel of the block.
struct SequenceGradientPart {
  SequenceGradientPart(const SequenceShape& shape, int64_t part);

  // Copies the sums to the gradient, row-major.
  void Write(const SequenceShape& shape, const float* own, float* to) const;

  int64_t first_block, blocks;  // of the panel
  int64_t in_block;
  AxisRange taps;
  int64_t sums;  // offset of the input block's
};
int64_t GradientParts(const SequenceShape& shape);

}  // namespace convgrad
