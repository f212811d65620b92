// Turns any problem of the contract into an ordinary convolution with one to
// three spatial axes, the only thing that a library has to do. A transposed
// convolution becomes its mirror, linear a 1x1 convolution along the batch, and
// kernel taps that only ever see padding are cut off (their gradient is 0;
// oneDNN 3.2 leaves some of them unwritten).
//
// The data stays where it is: Lowering gives views, dims and strides over the
// caller's buffers.
#pragma once

#include <vector>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// A box of elements in a buffer. Units: elements.
struct StridedView {
  DataType dtype = DataType::kF32;
  Dims dims;
  Dims strides;
  int64_t offset = 0;
};

// The three things that a library does.
enum class Pass { kForward, kBackwardData, kBackwardWeight };

absl::string_view NameOf(Pass pass);

// Returns which pass of the ordinary problem computes `which`. Requires:
// output, grad_input or grad_weight.
Pass PassFor(const ConvProblem& problem, Result which);

// The tensors of an ordinary convolution: its input, weight and output, or
// their gradients.
enum class Role { kData, kWeight, kOut };

// Returns the role of what a pass computes.
Role ResultOf(Pass pass);

// Value type; immutable.
class Lowering {
 public:
  // With `skips_unread`, where a kernel of 1 strides over an axis in whole
  // steps, the view of the data leaves out what no window reads, and the
  // lowered stride is 1: for those who copy the data in any case. Requires:
  // Validate(problem).ok().
  explicit Lowering(const ConvProblem& problem, bool skips_unread = false);

  // The ordinary problem: not transposed, at least one axis, no bias, residual
  // or ReLU, pads >= 0.
  const ConvProblem& problem() const { return lowered_; }

  // True if the roles are exchanged: the data side is then the caller's output
  // or grad_output, and the out side the caller's input or grad_input.
  bool mirrored() const { return mirrored_; }

  // Returns the view over a tensor of the caller that plays `role` in the
  // lowered problem. Requires: a row-major layout and the dims of that role.
  StridedView View(Role role, const TensorDescriptor& tensor) const;

  // Returns whether the view leaves elements out. As a result those must be 0.
  bool Crops(Role role) const;

  // Returns, axis by axis, how many elements of the data from one that the view
  // has to the next.
  const Dims& data_steps() const { return data_steps_; }

  // Returns the taps of each axis, in the caller's kernel, that only ever see
  // padding: their weight gradient is 0. Those at the kernel's ends are cut
  // off; for those between live ones a library may write anything.
  const std::vector<Dims>& dead_taps() const { return dead_taps_; }
  bool has_dead_inner_taps() const { return has_dead_inner_taps_; }

 private:
  void LowerAxis(size_t i);
  void SkipUnread(size_t i);
  StridedView Activation(const TensorDescriptor& tensor) const;
  StridedView Data(const TensorDescriptor& tensor) const;
  StridedView Weight(const TensorDescriptor& tensor) const;

  ConvProblem lowered_;
  bool mirrored_;
  bool linear_;
  bool has_dead_inner_taps_ = false;
  std::vector<Dims> dead_taps_;
  // Elements cut off before the first one kept, and in all.
  Dims data_begin_, data_cut_, weight_begin_, weight_cut_;
  Dims data_steps_;
};

}  // namespace convgrad
