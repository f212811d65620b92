// Adds a network's 3x3 convolutions by Winograd's algorithm
// (backends/kernels/winograd), which takes about half the time of the
// library's.
#pragma once

#include "backends/core/convolution/conv_problem.h"
#include "backends/core/convolution/lowering.h"
#include "backends/kernels/winograd/winograd.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_builder.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// A convolution or one of its gradients. `x` and `y` are the step's input and
// output or, depending on the pass, their gradients.
struct WinogradPass {
  Pass pass;
  ConvProblem problem;  // not transposed
  NetworkTensor x, y;
  // f32, row-major; for kBackwardWeight its gradient.
  BufferId weight = kNoBuffer;
  // What a forward does besides; kNoBuffer: nothing. Factors of the channels,
  // before the bias; an addend like y; and the function that comes last.
  BufferId bias = kNoBuffer;
  BufferId scales = kNoBuffer;
  BufferId addend = kNoBuffer;
  Pointwise function = {};
};

// Returns whether Winograd's algorithm applies, and is faster by measured
// costs (backends/kernels/README.md).
bool IsFastByWinograd(const WinogradPass& pass);

// Appends the pass. Returns an I32 buffer, in which the step leaves 0 if it has
// computed the pass, and 1 if some element is too large or not finite: steps
// that depend on this buffer (Schedule::RunOnlyIf) must then compute it.
// Requires: IsFastByWinograd(pass).
BufferId AddWinograd(const WinogradPass& pass, absl::string_view kind,
                     NetworkBuilder* builder);

}  // namespace convgrad::onednn
