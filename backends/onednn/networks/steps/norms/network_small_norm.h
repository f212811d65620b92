// `WriteSmallGradient` computes the gradient of a norm over few elements.
#pragma once

#include "backends/kernels/operators/batch_norm.h"

namespace convgrad::onednn {

// Returns whether `channels` channels that share their statistics have so few
// elements that f32 may be too inaccurate for the gradient. Subtracting the
// gradient's mean and its component along the normalized input may then leave
// less than the rounding error of f32. With two elements almost nothing is
// left.
bool HasFewElements(const ChannelBlocks& blocks, int64_t channels);

// Does the same as RunGradientInput in training, in double with one rounding,
// for `channels` channels from `first` on that share their statistics. Reads
// neither sums nor scratch, and writes no padding. `y` is the forward's result,
// from which it computes the activation's mask; null if there is no activation.
// Requires: HasFewElements; `dx` is in the place of no operand.
void WriteSmallGradient(const BatchNorm& norm, int64_t first, int64_t channels,
                        const BatchNormBackward& tensors,
                        const void* y = nullptr);

}  // namespace convgrad::onednn
