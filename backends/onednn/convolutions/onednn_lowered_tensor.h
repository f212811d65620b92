// A tensor of the caller as the library's convolution sees it: all of it, or
// what the lowered problem's strides and windows leave.
#pragma once

#include <memory>
#include <optional>

#include "backends/core/convolution/lowering.h"
#include "backends/kernels/copies/stride_gather.h"
#include "backends/onednn/convolutions/onednn_host_steps.h"
#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {

// Returns how a view that plays `role` lies in memory, its offset not counted.
dnnl::memory::desc DescOf(const Lowering& lowering, Role role,
                          const StridedView& view);

// Answers questions; changes nothing. `wanted` is a layout that a primitive
// asks for. The lowering must outlive it.
class LoweredTensor {
 public:
  LoweredTensor(const Lowering& lowering, Role role, Tensor tensor)
      : lowering_(lowering), role_(role), tensor_(std::move(tensor)) {}

  const Tensor& tensor() const { return tensor_; }
  Role role() const { return role_; }
  const Lowering& lowering() const { return lowering_; }

  // Whether the pass has less than all of the tensor.
  bool crops() const { return lowering_.Crops(role_); }
  // Whether nothing is left out but what lies between the elements, and after
  // the last one as much.
  bool HasStepsOnly() const;

  // Returns what the library sees of `row_major`: of this tensor, or of a copy
  // of all of it.
  LibraryTensor SeenIn(const Tensor& row_major) const;

  // Returns the part where it lies. Requires: a row-major tensor if it crops.
  Elements Part() const;
  // Returns the descriptor of a copy of the part alone, in the tensor's layout.
  TensorDescriptor DensePart() const;
  // Returns what brings the part to such a copy faster than a reorder; null if
  // nothing does.
  std::shared_ptr<const StrideGather> Gather() const;

  // Returns the layout behind `wanted` if it is one that Reorder reaches
  // without a detour: the part, dense or with channels in blocks.
  std::optional<PhysicalLayout> KnownLayout(
      const dnnl::memory::desc& wanted) const;
  // Whether a plain copy of the tensor lies as wanted, and it itself doesn't.
  bool IsMadePlain(const dnnl::memory::desc& wanted) const;
  // Whether our Reorder, where it knows the layout, shall bring the tensor to
  // it rather than the library.
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
