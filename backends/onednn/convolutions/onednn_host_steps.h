// Appends the steps of a plan that aren't convolutions: reorders between any
// two layouts, zeros, the ReLU mask, and the work after a pass.
#pragma once

#include "backends/core/convolution/conv_steps.h"
#include "backends/core/physical_layout.h"
#include "backends/onednn/convolutions/onednn_plan_builder.h"

namespace convgrad::onednn {

// Elements in the form that Reorder takes, with any layout.
struct Elements {
  PhysicalLayout layout;
  DataType dtype;
  Location location;
};

Elements ElementsOf(const Tensor& tensor);

// Append a step that copies all of `from` to `to`, and converts dtype and
// layout.
void AddReorder(const Tensor& from, const Tensor& to, PlanBuilder* builder);
void AddReorder(const Elements& from, const Elements& to, PlanBuilder* builder);

void AddZero(const Tensor& tensor, PlanBuilder* builder);

// Appends a step that zeroes the taps of a weight gradient that read only
// padding. Requires: a row-major layout.
void AddZeroDeadTaps(const Lowering& lowering, const Tensor& gradient,
                     PlanBuilder* builder);

// Appends a step that writes the masked `gradient` to `masked`, which has the
// same descriptor.
void AddMask(const Tensor& gradient, const Tensor& output, const Tensor& masked,
             PlanBuilder* builder);

// The work after a pass.
struct Finish {
  Tensor sums;    // the pass's output: f32 and row-major, or the result
  Tensor result;  // the caller's
  Epilogue epilogue;
  Location bias;      // f32
  Location residual;  // row-major
};

// Appends the step that computes the result from the sums. Requires: sums that
// are the result unless epilogue.needs_sums().
void AddFinish(const Finish& finish, PlanBuilder* builder);

}  // namespace convgrad::onednn
