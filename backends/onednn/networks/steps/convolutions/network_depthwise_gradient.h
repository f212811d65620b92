// Adds the weight gradients of a network's depthwise convolutions that the
// library would compute channel by channel as matrix products, which takes a
// hundred times as long.
#pragma once

#include "backends/onednn/networks/steps/convolutions/network_fast_pass.h"

namespace convgrad::onednn {

// Appends the backward-weight pass. Requires: each channel has one filter, of
// one or two axes, and the images are f32 in blocks of channels.
void AddDepthwiseGradient(const FastPass& pass, absl::string_view kind,
                          Schedule* schedule);

}  // namespace convgrad::onednn
