// Appends a program's steps other than convolutions: reorders between any two
// layouts, zeros, the ReLU mask and epilogues. Each function appends to
// `program`.
#pragma once

#include "backends/core/convolution/conv_steps.h"
#include "backends/kernels/copies/reorder.h"
#include "backends/onednn/convolutions/onednn_program.h"

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
void AddReorder(const Tensor& from, const Tensor& to, Program* program);
void AddReorder(const Elements& from, const Elements& to, Program* program);

void AddZero(const Tensor& tensor, Program* program);

// Appends a step that zeroes the taps of a weight gradient that read only
// padding. Requires: a row-major layout.
void AddZeroDeadTaps(const Lowering& lowering, const Tensor& gradient,
                     Program* program);

// Appends a step that writes the masked `gradient` to `masked`, which has the
// same descriptor.
void AddMask(const Tensor& gradient, const Tensor& output, const Tensor& masked,
             Program* program);

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
void AddFinish(const Finish& finish, Program* program);

}  // namespace convgrad::onednn
