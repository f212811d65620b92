// `AddUpDepthwiseGradient` computes the gradient of the weights of depthwise
// convolutions, one filter per channel. oneDNN has a fast one for 3x3 alone.
#pragma once

#include <cstdint>

#include "backends/kernels/convolutions/conv_axis.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// A depthwise convolution of images in channel blocks (ChannelBlocks).
struct DepthwiseShape {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t block = 8;  // 8 or 16 channels
  ConvAxis y, x;

  int64_t blocks() const { return (channels + block - 1) / block; }
};

// f32. `input` and `gradient`, that of the output, are in channel blocks.
// `weight_gradient` is row-major: channel, y, x.
struct DepthwiseGradientTensors {
  const float* input = nullptr;
  const float* gradient = nullptr;
  float* weight_gradient = nullptr;
};

// Writes the gradient: for each channel and tap the sum over all images and
// outputs of gradient * input. Sums of at most 256 products are in f32, and are
// added in double. The bits depend on the shape alone. An element reaches
// no sum that doesn't contain it. Thread-safe.
void AddUpDepthwiseGradient(const DepthwiseShape& shape,
                            const DepthwiseGradientTensors& tensors,
                            RunParts run);

}  // namespace convgrad
