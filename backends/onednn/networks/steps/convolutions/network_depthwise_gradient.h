// Adds the weight gradients of a network's depthwise convolutions that the
// library would compute channel by channel as matrix products, which takes a
// hundred times as long.
#pragma once

#include "backends/core/convolution/conv_problem.h"
#include "backends/onednn/networks/schedule/network_builder.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// The tensors of a weight gradient; `dw` is f32 and row-major.
struct DepthwiseGradientPass {
  ConvProblem problem;  // not transposed
  NetworkTensor x, dy;
  BufferId dw = kNoBuffer;
};

// Appends the pass. Requires: each channel has one filter, of one or two axes,
// and the images are f32 in blocks of channels.
void AddDepthwiseGradient(const DepthwiseGradientPass& pass,
                          absl::string_view kind, Schedule* schedule);

}  // namespace convgrad::onednn
