// `LoweredTensor` describes a tensor of the caller as the library's convolution
// sees it: all of it, or the part that the lowered problem's strides and
// windows read.
#pragma once

#include <memory>
#include <optional>

#include "backends/core/convolution/lowering.h"
#include "backends/kernels/copies/stride_gather.h"
#include "backends/onednn/convolutions/onednn_host_steps.h"
#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {

// Returns the layout of a view with the role `role`, without its offset.
dnnl::memory::desc DescOf(const Lowering& lowering, Role role,
                          const StridedView& view);

// Immutable. `wanted` is a layout that a primitive requires. The lowering must
// outlive it.
class LoweredTensor {
 public:
  LoweredTensor(const Lowering& lowering, Role role, Tensor tensor)
      : lowering_(lowering), role_(role), tensor_(std::move(tensor)) {}

  const Tensor& tensor() const { return tensor_; }
  Role role() const { return role_; }
  const Lowering& lowering() const { return lowering_; }

  // Returns whether the pass sees only a part of the tensor.
  bool crops() const { return lowering_.Crops(role_); }
  // Returns whether the pass omits only elements that a stride skips, and every
  // spatial extent is a whole number of strides.
  bool HasStepsOnly() const;

  // Returns the part that the library sees of `row_major`, which is this tensor
  // or a copy of all of it.
  LibraryTensor SeenIn(const Tensor& row_major) const;

  // Returns the part at its place in the tensor. Requires: a row-major tensor
  // if it crops.
  Elements Part() const;
  // Returns the descriptor of a copy of the part, in the tensor's layout.
  TensorDescriptor DensePart() const;
  // Returns a kernel that makes such a copy faster than a reorder does; null if
  // there is none.
  std::shared_ptr<const StrideGather> Gather() const;

  // Returns the layout that `wanted` describes if Reorder can write it
  // directly: the part, dense or with channels in blocks.
  std::optional<PhysicalLayout> KnownLayout(
      const dnnl::memory::desc& wanted) const;
  // Returns whether a plain copy of the tensor has the layout `wanted` but the
  // tensor itself doesn't.
  bool IsMadePlain(const dnnl::memory::desc& wanted) const;
  // Returns whether to use our Reorder, if it supports the layout, rather than
  // the library's, which neither converts the dtype nor copies a part as fast.
  bool PrefersOurReorder(const dnnl::memory::desc& wanted) const;

 private:
  StridedView View(const TensorDescriptor& row_major) const {
    return lowering_.View(role_, row_major);
  }

  const Lowering& lowering_;
  const Role role_;
  const Tensor tensor_;
};

}  // namespace convgrad::onednn
