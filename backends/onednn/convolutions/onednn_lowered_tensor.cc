#include "backends/onednn/convolutions/onednn_lowered_tensor.h"

#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {

using dnnl::memory;

memory::desc DescOf(const Lowering& lowering, Role role,
                    const StridedView& view) {
  return role == Role::kWeight ? WeightDesc(view, lowering.problem().groups)
                               : ActivationDesc(view);
}

bool LoweredTensor::HasStepsOnly() const {
  if (!crops()) return false;
  const Dims& steps = lowering_.data_steps();
  const Dims& whole = tensor_.descriptor.dims;
  const StridedView view = View(tensor_.descriptor);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (view.dims[i + 2] * steps[i] != whole[i + 2]) return false;
  }
  return true;
}

LibraryTensor LoweredTensor::SeenIn(const Tensor& row_major) const {
  const StridedView view = View(row_major.descriptor);
  return {row_major.location.At(view.offset * ByteSizeOf(view.dtype)),
          DescOf(lowering_, role_, view)};
}

Elements LoweredTensor::Part() const {
  if (!crops()) return ElementsOf(tensor_);
  const StridedView view = View(tensor_.descriptor);
  Elements part = {{}, view.dtype, SeenIn(tensor_).location};
  for (size_t i = 0; i < view.dims.size(); ++i) {
    part.layout.axes.push_back({view.dims[i], view.strides[i]});
  }
  return part;
}

TensorDescriptor LoweredTensor::DensePart() const {
  TensorDescriptor dense = tensor_.descriptor;
  dense.dims = View(dense).dims;
  return dense;
}

std::shared_ptr<const StrideGather> LoweredTensor::Gather() const {
  const TensorDescriptor& tensor = tensor_.descriptor;
  if (!HasStepsOnly() || tensor.layout != Layout::kNCX) return nullptr;
  auto gather =
      StrideGather::Make(tensor.dtype, tensor.dims, lowering_.data_steps());
  if (!gather) return nullptr;
  return std::make_shared<const StrideGather>(*std::move(gather));
}

std::optional<PhysicalLayout> LoweredTensor::KnownLayout(
    const memory::desc& wanted) const {
  const TensorDescriptor& tensor = tensor_.descriptor;
  const bool is_linear = tensor.dims.size() == 2;
  if (role_ == Role::kWeight || is_linear ||
      (crops() && !IsRowMajor(tensor.layout))) {
    return std::nullopt;
  }
  const StridedView view = View(PlainDescriptor(tensor, DtypeOf(wanted)));
  const memory::dims dims = ActivationDims(view);
  for (Format format : {Format::kNXC, Format::kNCX}) {
    if (wanted == FormatDesc(dims, view.dtype, format)) {
      const Layout layout =
          format == Format::kNXC ? Layout::kNXC : Layout::kNCX;
      return PhysicalLayoutOf({view.dtype, layout, view.dims});
    }
  }
  for (int64_t block : {8, 16}) {
    if (wanted == BlockedDesc(dims, view.dtype, block)) {
      return ChannelBlocked(view.dims, block);
    }
  }
  return std::nullopt;
}

bool LoweredTensor::IsMadePlain(const memory::desc& wanted) const {
  const TensorDescriptor& tensor = tensor_.descriptor;
  const DataType dtype = DtypeOf(wanted);
  return !IsPlain(tensor, dtype) &&
         SeenIn({PlainDescriptor(tensor, dtype), {}}).desc == wanted;
}

bool LoweredTensor::PrefersOurReorder(const memory::desc& wanted) const {
  return !IsPlain(tensor_.descriptor, DtypeOf(wanted)) || crops();
}

}  // namespace convgrad::onednn
