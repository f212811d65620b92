// Computes a dilated convolution as one 1x1 convolution for each element of its
// kernel (a tap) on the part of the image that the tap sees. Where the dilation
// is near the size of the image, as in DeepLabV3, most taps mostly see padding,
// which the library multiplies, too.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/convolution/lowering.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// A convolution or one of its gradients. `x` and `y` are the step's input and
// output or, depending on the pass, their gradients.
struct TapsPass {
  Pass pass;
  ConvProblem problem;  // not transposed
  NetworkTensor x, y;
  // f32, row-major; for kBackwardWeight its gradient.
  BufferId weight = kNoBuffer;
  BufferId bias = kNoBuffer;  // only for a forward
  std::string name = {};      // of the step's result, for errors
  size_t steps_before = 0;    // of the plan
};

// Returns whether the pass can be computed by taps, and that is faster by
// measured costs than the library or, if `has_winograd`, than Winograd's
// algorithm. Doesn't look at buffers.
bool IsFastByTaps(const TapsPass& pass, bool has_winograd);

// Appends the pass. Errors: kUnimplemented, as AddConvPass. Throws dnnl::error.
// Requires: IsFastByTaps of the pass.
absl::Status AddByTaps(const TapsPass& pass, absl::string_view kind,
                       Schedule* schedule);

}  // namespace convgrad::onednn
