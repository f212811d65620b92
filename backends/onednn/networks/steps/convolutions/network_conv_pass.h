// `AddConvPass` appends one pass of a convolution by the library.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/convolution/lowering.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// A pass of `problem`, which isn't transposed.
struct ConvPass {
  Pass pass;
  ConvProblem problem;
  // Operands, and the result of the pass: a gradient has its tensor's place.
  LibraryTensor data, weight, out;
  BufferId bias = kNoBuffer;  // only for a forward
  absl::string_view kind;     // as Step::kind
  double macs = 0;
  std::string name;  // of the step's result, for errors
};

// Appends a pass, with the reorders of its operands and its result. Uses the
// network's layouts if the library has a fast implementation for them, else the
// library's. If the library has none, the schedule fails with kUnimplemented.
// Throws dnnl::error.
void AddConvPass(const ConvPass& pass, Schedule* schedule);

}  // namespace convgrad::onednn
