// `Lowering` turns any problem of the contract into an ordinary convolution
// with one to three spatial axes, so that libraries need to support only these.
// A transposed convolution becomes its mirror, linear a 1x1 convolution along
// the batch. Kernel taps that read only padding are cut off: their gradient is
// 0, and oneDNN 3.2 doesn't write some of these gradients.
//
// It doesn't move data: it returns views (dims and strides) over the caller's
// buffers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// A box of elements in a buffer. Units: elements.
struct StridedView {
  DataType dtype = DataType::kF32;
  Dims dims;
  Dims strides;
  int64_t offset = 0;
};

// The operations that a library provides.
enum class Pass { kForward, kBackwardData, kBackwardWeight };

absl::string_view NameOf(Pass pass);

// Returns the pass of the ordinary problem that computes `which`. Requires:
// output, grad_input or grad_weight.
Pass PassFor(const ConvProblem& problem, Result which);

// The tensors of an ordinary convolution: its input, weight and output, or
// their gradients.
enum class Role { kData, kWeight, kOut };

// Returns the role of a pass's result.
Role ResultOf(Pass pass);

// Value type; immutable.
class Lowering {
 public:
  // `skips_unread` is for callers that copy the data in any case. It matters
  // for a kernel of 1 that strides over an unpadded axis whose extent is a
  // multiple of the stride. The view of the data then omits unread elements,
  // and the lowered stride is 1. Requires: Validate(problem).ok().
  explicit Lowering(const ConvProblem& problem, bool skips_unread = false);

  // Returns the ordinary problem: not transposed, at least one axis, no bias,
  // residual or ReLU, pads >= 0.
  const ConvProblem& problem() const { return lowered_; }

  // Returns true if the roles are exchanged: kData is then the caller's output
  // or grad_output, and kOut the caller's input or grad_input.
  bool mirrored() const { return mirrored_; }

  // Returns the view over the caller's tensor with `role` in the lowered
  // problem. Requires: a row-major layout and the dims of that role.
  StridedView View(Role role, const TensorDescriptor& tensor) const;

  // Returns whether the view omits elements. In a result the caller must set
  // them to 0.
  bool Crops(Role role) const;

  // Returns, per axis, the distance in data elements between neighbours of the
  // view.
  const Dims& data_steps() const { return data_steps_; }

  // Returns whether tap `tap` of axis `i`, in the caller's kernel, reads only
  // padding. Its weight gradient is 0. Such taps at the kernel's ends are cut
  // off; for those between other taps a library may write anything.
  bool IsDead(size_t i, int64_t tap) const;
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
  absl::InlinedVector<SpatialAxis, 3> whole_axes_;  // before the cuts
  // Elements cut off in front, and in total.
  Dims data_begin_, data_cut_, weight_begin_, weight_cut_;
  Dims data_steps_;
};

}  // namespace convgrad
