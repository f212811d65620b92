#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {

using dnnl::memory;

const dnnl::engine& CpuEngine() {
  static const auto* const kEngine = [] {
    // The library would return the implementation of another primitive that it
    // takes for the same, so bits would depend on earlier requests (see
    // backends/gotchas.md).
    dnnl::set_primitive_cache_capacity(0);
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *kEngine;
}

absl::string_view NameOf(Format format) {
  constexpr absl::string_view kNames[] = {"any", "nxc", "ncx"};
  return kNames[static_cast<size_t>(format)];
}

std::optional<Format> ParseFormat(absl::string_view name) {
  for (Format format : {Format::kAny, Format::kNXC, Format::kNCX}) {
    if (name == NameOf(format)) return format;
  }
  return std::nullopt;
}

memory::data_type TypeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kBF16:
      return memory::data_type::bf16;
    case DataType::kF16:
      return memory::data_type::f16;
    case DataType::kU8:
      return memory::data_type::u8;
    case DataType::kF32:
    // The library has neither 64-bit nor unsigned 16-bit integers.
    case DataType::kI64:
    case DataType::kU16:
      break;
  }
  return memory::data_type::f32;
}

memory::dims ActivationDims(const StridedView& view) {
  return memory::dims(view.dims.begin(), view.dims.end());
}

memory::dims WeightDimsOf(const ConvProblem& problem) {
  const Dims dims = WeightDims(problem);
  memory::dims result(dims.begin(), dims.end());
  if (problem.groups > 1) {
    result[0] /= problem.groups;
    result.insert(result.begin(), problem.groups);
  }
  return result;
}

memory::desc ActivationDesc(const StridedView& view) {
  return memory::desc(ActivationDims(view), TypeOf(view.dtype),
                      memory::dims(view.strides.begin(), view.strides.end()));
}

memory::desc WeightDesc(const StridedView& view, int64_t groups) {
  memory::dims dims(view.dims.begin(), view.dims.end());
  memory::dims strides(view.strides.begin(), view.strides.end());
  if (groups > 1) {
    dims[0] /= groups;
    strides.insert(strides.begin(), strides[0] * dims[0]);
    dims.insert(dims.begin(), groups);
  }
  return memory::desc(dims, TypeOf(view.dtype), strides);
}

memory::desc BiasDesc(const ConvProblem& problem) {
  return {
      {problem.out_channels}, memory::data_type::f32, memory::format_tag::a};
}

memory::desc FormatDesc(const memory::dims& dims, DataType dtype,
                        Format format) {
  if (format == Format::kAny) {
    return memory::desc(dims, TypeOf(dtype), memory::format_tag::any);
  }
  TensorDescriptor dense{dtype,
                         format == Format::kNXC ? Layout::kNXC : Layout::kNCX,
                         Dims(dims.begin(), dims.end())};
  return ActivationDesc({dtype, dense.dims, Strides(dense), 0});
}

memory::desc BlockedDesc(const memory::dims& dims, DataType dtype,
                         int64_t block) {
  using Tag = memory::format_tag;
  constexpr Tag kTags[2][3] = {{Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c},
                               {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c}};
  return memory::desc(dims, TypeOf(dtype),
                      kTags[block == 16 ? 1 : 0][dims.size() - 3]);
}

DataType DtypeOf(const memory::desc& desc) {
  switch (desc.get_data_type()) {
    case memory::data_type::bf16:
      return DataType::kBF16;
    case memory::data_type::f16:
      return DataType::kF16;
    default:
      return DataType::kF32;
  }
}

DataType ComputeDtype(DataType dtype, const ComputeOptions& options) {
  return dtype == DataType::kBF16 && options.native_bf16 ? dtype
                                                         : DataType::kF32;
}

bool IsPlain(const TensorDescriptor& tensor, DataType dtype) {
  return IsRowMajor(tensor.layout) && tensor.dtype == dtype;
}

TensorDescriptor PlainDescriptor(TensorDescriptor tensor, DataType dtype) {
  tensor.dtype = dtype;
  if (!IsRowMajor(tensor.layout)) {
    tensor.layout = IsWeightLayout(tensor.layout) ? Layout::kOIX : Layout::kNXC;
  }
  return tensor;
}

dnnl::primitive_attr StrictAttributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attributes;
}

}  // namespace convgrad::onednn
