// `FastPass` is a convolution that is computed faster than by the library: by
// Winograd's algorithm (network_winograd.h), by taps (network_conv_taps.h) or
// by kernels for sequences (network_conv_sequence.h).
#pragma once

#include "backends/core/convolution/conv_problem.h"
#include "backends/core/convolution/lowering.h"
#include "backends/kernels/convolutions/conv_axis.h"
#include "backends/kernels/operators/pointwise.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// A convolution or one of its gradients. `x` and `y` are the step's input and
// output or, depending on the pass, their gradients.
struct FastPass {
  Pass pass;
  ConvProblem problem;  // not transposed
  NetworkTensor x, y;
  // f32, row-major; for kBackwardWeight its gradient.
  BufferId weight = kNoBuffer;
  // Only for a forward; kNoBuffer: none.
  BufferId bias = kNoBuffer;
  // Only for a forward by Winograd's algorithm: factors of the channels, before
  // the bias; an addend like y; the function that comes last.
  BufferId scales = kNoBuffer;
  BufferId addend = kNoBuffer;
  Pointwise function = {};
};

// Returns whether both images are f32, in blocks of as many channels.
inline bool HasF32Blocks(const FastPass& pass) {
  return IsInBlocks(pass.x, DataType::kF32) &&
         IsInBlocks(pass.y, DataType::kF32) &&
         pass.x.blocks.block == pass.y.blocks.block;
}

// Returns an axis as our kernels take it.
inline ConvAxis AxisOf(const SpatialAxis& axis) {
  return {.in = axis.in,
          .out = axis.out,
          .kernel = axis.kernel,
          .stride = axis.stride,
          .dilation = axis.dilation,
          .pad = axis.pad_begin};
}

}  // namespace convgrad::onednn
