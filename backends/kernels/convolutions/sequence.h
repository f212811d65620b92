// `SequenceShape` is the shape of a convolution along one axis.
#pragma once

#include <cstdint>
#include <utility>

#include "backends/kernels/convolutions/conv_axis.h"

namespace convgrad {

// A convolution of sequences whose channels are in blocks (ChannelBlocks).
struct SequenceShape {
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;
  int64_t block = 8;  // 8 or 16 channels
  ConvAxis axis;

  int64_t in_blocks() const { return (in_channels + block - 1) / block; }
  int64_t out_blocks() const { return (out_channels + block - 1) / block; }
};

// Returns the shape whose output is the gradient of the other's input. Its
// kernel is the other's in reverse. Requires: stride 1.
inline SequenceShape MirrorOf(SequenceShape shape) {
  ConvAxis& axis = shape.axis;
  std::swap(shape.in_channels, shape.out_channels);
  std::swap(axis.in, axis.out);
  axis.pad = (axis.kernel - 1) * axis.dilation - axis.pad;
  return shape;
}

}  // namespace convgrad
