// The steps of a program that are no convolutions: reorders between any two
// layouts, zeros, the ReLU mask and what follows a pass. Each function appends
// to `program`.
#pragma once

#include "backends/core/convolution/conv_steps.h"
#include "backends/kernels/copies/reorder.h"
#include "backends/onednn/convolutions/onednn_program.h"

namespace convgrad::onednn {

// Elements as Reorder sees them, whether or not a descriptor names their
// layout.
struct Elements {
  PhysicalLayout layout;
  DataType dtype;
  Location location;
};

Elements ElementsOf(const Tensor& tensor);

// Append a copy of all of `from` to `to`, which converts.
void AddReorder(const Tensor& from, const Tensor& to, Program* program);
void AddReorder(const Elements& from, const Elements& to, Program* program);

void AddZero(const Tensor& tensor, Program* program);

// Has those taps of a weight gradient zeroed that no data reaches. Requires: a
// row-major layout.
void AddZeroDeadTaps(const Lowering& lowering, const Tensor& gradient,
                     Program* program);

// Has `gradient`, masked, written to `masked`, which has its descriptor.
void AddMask(const Tensor& gradient, const Tensor& output, const Tensor& masked,
             Program* program);

// What is left to do after a pass.
struct Finish {
  Tensor sums;    // what the pass writes: f32 and row-major, or the result
  Tensor result;  // the caller's
  Epilogue epilogue;
  Location bias;      // f32
  Location residual;  // row-major
};

// Appends what brings the sums to the result. Requires: sums that are the
// result unless epilogue.needs_sums().
void AddFinish(const Finish& finish, Program* program);

}  // namespace convgrad::onednn
