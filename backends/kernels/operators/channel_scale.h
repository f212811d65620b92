// `ScaleChannels` combines an activation with one number per channel, or per
// image and channel: broadcast operands of add and mul, and a batch_norm at
// inference.
#pragma once

#include <cstdint>

#include "backends/kernels/operators/channel_blocks.h"
#include "backends/kernels/operators/pointwise.h"

namespace convgrad {

// y = activation((x - center) * scale + shift + addend). The numbers of image n
// begin at n * image_stride, which is 0 (the same numbers for all images) or
// padded_channels(). The numbers of padding must be zeros.
struct ChannelScale {
  const float* center;
  const float* scale;
  const float* shift;
  int64_t image_stride = 0;
};

struct ChannelScaleTensors {
  const void* x;
  const void* addend = nullptr;               // like x; null: none
  Activation activation = Activation::kNone;  // or kRelu, kRelu6
  void* y;                                    // may be x or addend
};

// With center 0 and shift -0 the result has the bits of the product alone, with
// center 0 and scale 1 those of the sum alone. Thread-safe.
void ScaleChannels(const ChannelBlocks& blocks, const ChannelScale& numbers,
                   const ChannelScaleTensors& tensors, RunParts run);

// Writes sum[c] = the sum of a over images and positions, and product[c] = the
// sum of a * b, in double, padded_channels() each. These are the gradients of
// broadcast operands; call it for one image at a time if the operand has a
// number per image. `scratch` has BatchNormScratch(blocks) elements.
struct ChannelSums {
  double* sum;
  double* product;  // null: `b` isn't read
};
void SumChannels(const ChannelBlocks& blocks, const void* a, const void* b,
                 double* scratch, RunParts run, ChannelSums sums);

}  // namespace convgrad
