// `RunSmallGradientInput` computes the gradient of a batch_norm over few
// elements.
#pragma once

#include "backends/kernels/operators/batch_norm.h"

namespace convgrad::onednn {

// Returns whether each channel has so few elements that f32 may be too
// inaccurate for its gradient. Subtracting the gradient's mean and its
// component along the normalized input may then leave less than the rounding
// error of f32. With two elements almost nothing is left.
bool HasFewElements(const ChannelBlocks& blocks);

// Does the same as RunGradientInput for a batch_norm in training, in double
// with one rounding, channel by channel. Reads neither sums nor scratch. `y` is
// the forward's result, from which it computes the activation's mask; null if
// there is no activation. Requires: `dx` is in the place of no operand.
void RunSmallGradientInput(const BatchNorm& norm,
                           const BatchNormBackward& tensors, const void* y);

}  // namespace convgrad::onednn
