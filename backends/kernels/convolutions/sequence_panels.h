// Divides the work and the weights of a convolution of sequences. A *panel* is
// two blocks of output channels, or the last one alone.
#pragma once

#include <cstdint>

#include "backends/kernels/convolutions/sequence.h"

namespace convgrad {

// Outputs that are computed together, so that they stay in a core's caches.
inline constexpr int64_t kChunk = 256;
// Products that a gradient's sum begins with.
inline constexpr int64_t kShortSum = 128;
// Taps of one part of a gradient.
inline constexpr int64_t kTapsOfPart = 8;

inline int64_t PanelsOf(const SequenceShape& shape) {
  return (shape.out_blocks() + 1) / 2;
}
inline int64_t ChunksOf(const SequenceShape& shape) {
  return (shape.out + kChunk - 1) / kChunk;
}

// Returns how many blocks of input channels are summed before the next ones, so
// that their weights stay in a core's second cache.
int64_t SliceOf(const SequenceShape& shape);

// Arranged weights: panel, block of input channels, tap, input channel, output
// channel of the panel. Then the bias, with 0 for padding.
struct Panel {
  Panel(const SequenceShape& shape, int64_t panel);

  int64_t first_block;
  int64_t blocks;   // 1 or 2
  int64_t weights;  // offset of the first
};
int64_t BiasOffset(const SequenceShape& shape);

// Sums of a gradient: panel, block of input channels, tap, block of the panel,
// input channel, output channel of the block.
struct GradientPart {
  GradientPart(const SequenceShape& shape, int64_t part);

  // Copies the sums to the gradient, row-major.
  void Write(const SequenceShape& shape, const float* own, float* to) const;

  int64_t first_block, blocks;  // of the panel
  int64_t in_block;
  SequenceRange taps;
  int64_t sums;  // offset of the input block's
};
int64_t GradientParts(const SequenceShape& shape);

}  // namespace convgrad
