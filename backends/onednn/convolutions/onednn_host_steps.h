// Appends the steps of a plan that aren't convolutions: reorders between any
// two layouts, zeros, the ReLU mask, and the work after a pass.
#pragma once

#include "backends/core/convolution/conv_steps.h"
#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {

// A tensor of the caller, or a copy of one.
struct Tensor {
  TensorDescriptor descriptor;
  Location location;
};

// Returns a tensor in a new buffer.
Tensor NewTensor(const TensorDescriptor& descriptor, Schedule* schedule);

Elements ElementsOf(const Tensor& tensor);

// Appends a step that copies all of `from` to `to`, and converts dtype and
// layout.
void AddReorder(const Tensor& from, const Tensor& to, Schedule* schedule);

// Returns the tensor if it has the layout of `like`, else a copy of it that
// has. The copy has the tensor's dtype. Requires: equal dims.
Tensor InLayoutOf(const Tensor& like, const Tensor& tensor, Schedule* schedule);

void AddZero(const Tensor& tensor, Schedule* schedule);

// Appends a step that zeroes the taps of a weight gradient that read only
// padding. Requires: a row-major layout.
void AddZeroDeadTaps(const Lowering& lowering, const Tensor& gradient,
                     Schedule* schedule);

// Appends a step that writes the masked `gradient` to `masked`, which has the
// same descriptor.
void AddMask(const Tensor& gradient, const Tensor& output, const Tensor& masked,
             Schedule* schedule);

// The work after a pass.
struct Finish {
  Tensor sums;    // the pass's output: f32 and row-major, or the result
  Tensor result;  // the caller's
  Epilogue epilogue;
  Location bias;      // f32
  Location residual;  // in the layout of the sums
};

// Appends the step that computes the result from the sums. Requires: sums that
// are the result unless epilogue.needs_sums().
void AddFinish(const Finish& finish, Schedule* schedule);

}  // namespace convgrad::onednn
