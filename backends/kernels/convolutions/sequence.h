// `SequenceShape` is the shape of a convolution along one axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace convgrad {

// A convolution of sequences whose channels are in blocks (ChannelBlocks).
struct SequenceShape {
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;
  int64_t block = 8;        // 8 or 16 channels
  int64_t in = 0, out = 0;  // positions
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t pad = 0;  // at the begin; may be negative

  int64_t in_blocks() const { return (in_channels + block - 1) / block; }
  int64_t out_blocks() const { return (out_channels + block - 1) / block; }
  // Returns the input's position that the first tap reads for an output.
  int64_t FirstOf(int64_t output) const { return output * stride - pad; }
};

// Returns the shape whose output is the gradient of the other's input. Its
// kernel is the other's in reverse. Requires: stride 1.
inline SequenceShape MirrorOf(SequenceShape shape) {
  std::swap(shape.in_channels, shape.out_channels);
  std::swap(shape.in, shape.out);
  shape.pad = (shape.kernel - 1) * shape.dilation - shape.pad;
  return shape;
}

// Some taps of the kernel, or some outputs.
struct SequenceRange {
  int64_t begin = 0, end = 0;

  bool operator==(const SequenceRange& other) const {
    return begin == other.begin && end == other.end;
  }
};

// Returns the taps that see the input, and no padding, for an output.
inline SequenceRange TapsOf(const SequenceShape& shape, int64_t output) {
  const int64_t first = shape.FirstOf(output);
  // Taps before `position`.
  const auto before = [&](int64_t position) {
    const int64_t distance = position - first;
    return distance <= 0
               ? 0
               : std::min((distance - 1) / shape.dilation + 1, shape.kernel);
  };
  return {before(0), before(shape.in)};
}

// Returns the outputs for which a tap sees the input.
inline SequenceRange OutputsOf(const SequenceShape& shape, int64_t tap) {
  // The position for output 0.
  const int64_t first = tap * shape.dilation - shape.pad;
  const auto before = [&](int64_t position) {
    const int64_t distance = position - first;
    return distance <= 0
               ? 0
               : std::min((distance - 1) / shape.stride + 1, shape.out);
  };
  return {before(0), before(shape.in)};
}

// Returns the end of the outputs from `begin` on, before `limit`, that see the
// same taps, `taps`.
inline int64_t EndOfRun(const SequenceShape& shape, const SequenceRange& taps,
                        int64_t begin, int64_t limit) {
  if (taps == SequenceRange{0, shape.kernel}) {
    return std::min(limit, OutputsOf(shape, shape.kernel - 1).end);
  }
  int64_t end = begin + 1;
  while (end < limit && TapsOf(shape, end) == taps) ++end;
  return end;
}

}  // namespace convgrad
