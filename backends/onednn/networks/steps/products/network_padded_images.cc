#include "backends/onednn/networks/steps/products/network_padded_images.h"

#include "backends/core/physical_layout.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/steps/products/network_conv_descs.h"
#include "backends/onednn/networks/steps/products/network_conv_dtype.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kPaddedChannels = 4;

// Returns a row-major layout of `dims` whose second axis is padded.
PhysicalLayout PaddedLayout(const Dims& dims) {
  PhysicalLayout layout;
  layout.axes.resize(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    layout.axes[i] = {dims[i], stride};
    if (i == 1) {
      layout.axes[i].block = layout.axes[i].padded = kPaddedChannels;
      layout.axes[i].block_stride = kPaddedChannels * stride;
    }
    stride *= i == 1 ? kPaddedChannels : dims[i];
  }
  return layout;
}

}  // namespace

bool PadsImages(const ConvProblem& problem, const NetworkTensor& y,
                const NetworkBuilder& builder) {
  if (!builder.options().native_bf16 || builder.dtype() != DataType::kBF16 ||
      !IsInBlocks(y, DataType::kBF16) || problem.in_channels != kChannels ||
      problem.groups > 1 || problem.transposed || !IsRightInBf16(problem)) {
    return false;
  }
  const ConvProblem padded = PaddedProblem(problem);
  const auto found = MakePassDesc(
      Pass::kForward, padded,
      {PaddedImagesDesc(padded),
       {WeightDimsOf(padded), TypeOf(DataType::kBF16),
        dnnl::memory::format_tag::any},
       DescOf(y),
       {}});
  return found && !IsPlainLoop(found);
}

ConvProblem PaddedProblem(ConvProblem problem) {
  problem.in_channels = kPaddedChannels;
  return problem;
}

dnnl::memory::desc PaddedImagesDesc(const ConvProblem& problem) {
  const Dims dims = InputDims(problem);
  return FormatDesc({dims.begin(), dims.end()}, DataType::kBF16, Format::kNCX);
}

LibraryTensor PaddedImages(const std::string& x, const ConvProblem& problem,
                           NetworkBuilder* builder) {
  const dnnl::memory::desc desc = PaddedImagesDesc(problem);
  const BufferId padded =
      builder->schedule().AddBuffer(static_cast<int64_t>(desc.get_size()));
  builder->CopyValue(x, PaddedLayout(builder->shapes().dims.at(x)),
                     DataType::kBF16, padded);
  return {padded, desc};
}

LibraryTensor PaddedWeight(const std::string& weight,
                           const ConvProblem& problem,
                           NetworkBuilder* builder) {
  const dnnl::memory::desc desc = PlainWeightDesc(problem);
  const BufferId padded =
      builder->schedule().AddBuffer(static_cast<int64_t>(desc.get_size()));
  const Dims& dims = builder->shapes().dims.at(weight);
  AddReorder(
      Reorder::Make(
          convgrad::PhysicalLayoutOf(
              TensorDescriptor{DataType::kF32, Layout::kOIX, dims, 0, 1}),
          DataType::kF32, PaddedLayout(dims), DataType::kF32),
      builder->Parameter(weight), padded, &builder->schedule());
  return {padded, desc};
}

}  // namespace convgrad::onednn
