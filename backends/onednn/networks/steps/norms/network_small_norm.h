// The gradient of a batch_norm over few elements.
#pragma once

#include "backends/kernels/operators/batch_norm.h"

namespace convgrad::onednn {

// Whether each channel has so few elements that what is left of a gradient,
// after its mean and its share along the normalised input are subtracted, may
// be less than the rounding of f32: of two elements, next to nothing is left.
bool HasFewElements(const ChannelBlocks& blocks);

// As RunGradientInput for a training batch_norm, all in double with one
// rounding, a channel after the other. Reads neither sums nor scratch. `y` is
// the forward's result, which tells what an activation let through; null if
// there is none.
void RunSmallGradientInput(const BatchNorm& norm,
                           const BatchNormBackward& tensors, const void* y);

}  // namespace convgrad::onednn
