#include "backends/onednn/networks/steps/convolutions/network_padded_images.h"

#include "backends/core/physical_layout.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_dtype.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_pass.h"

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

// Returns a caller's weight with `dims`, and a padded one.
Elements CallersWeight(const Dims& dims, BufferId weight) {
  const TensorDescriptor descriptor = {DataType::kF32, Layout::kOIX, dims, 0,
                                       1};
  return {convgrad::PhysicalLayoutOf(descriptor), DataType::kF32, weight};
}
Elements PaddedWeight(const Dims& dims, const LibraryTensor& padded) {
  return {PaddedLayout(dims), DataType::kF32, padded.location};
}

// Returns a buffer for the weight of the padded problem, or its gradient.
LibraryTensor AddWeightBuffer(const ConvProblem& padded, Schedule* schedule) {
  const dnnl::memory::desc desc = PlainWeightDesc(padded);
  return {schedule->AddBuffer(static_cast<int64_t>(desc.get_size())), desc};
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
  const auto has = [&](Pass pass) {
    return bool{
        FindFastPass(pass, padded, PaddedImagesDesc(padded), DescOf(y))};
  };
  return has(Pass::kForward) &&
         (!builder.has_backward() || has(Pass::kBackwardWeight));
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
      builder->AddBuffer(static_cast<int64_t>(desc.get_size()));
  builder->CopyValue(x, PaddedLayout(builder->shapes().dims.at(x)),
                     DataType::kBF16, padded);
  return {padded, desc};
}

LibraryTensor PaddedWeight(const std::string& weight,
                           const ConvProblem& problem,
                           NetworkBuilder* builder) {
  LibraryTensor padded = AddWeightBuffer(problem, builder);
  const Dims& dims = builder->shapes().dims.at(weight);
  AddReorder(CallersWeight(dims, builder->Parameter(weight)),
             PaddedWeight(dims, padded), builder);
  return padded;
}

void PaddedConvolution::AddForward(NetworkBuilder* builder) {
  const ConvProblem padded = PaddedProblem(problem_);
  images_ = PaddedImages(step_.operands[0], padded, builder);
  AddConvPass({.pass = Pass::kForward,
               .problem = padded,
               .data = images_,
               .weight = PaddedWeight(step_.operands[1], padded, builder),
               .out = TensorOf(builder->AddValue(step_.result)),
               .bias = builder->Parameter(OperandAt(step_, 2)),
               .kind = "conv forward",
               .macs = static_cast<double>(MultiplyAdds(problem_)),
               .name = step_.result},
              builder);
}

void PaddedConvolution::AddBackwardWeight(const NetworkTensor& dy,
                                          NetworkBuilder* builder) const {
  const ConvProblem padded = PaddedProblem(problem_);
  Schedule* const schedule = builder;
  const LibraryTensor dw = AddWeightBuffer(padded, schedule);
  AddConvPass({.pass = Pass::kBackwardWeight,
               .problem = padded,
               .data = images_,
               .weight = dw,
               .out = TensorOf(dy),
               .kind = "conv backward weight",
               .macs = static_cast<double>(MultiplyAdds(problem_)),
               .name = step_.result},
              schedule);
  const std::string& weight = step_.operands[1];
  const Dims& dims = builder->shapes().dims.at(weight);
  AddReorder(PaddedWeight(dims, dw),
             CallersWeight(dims, builder->NewParameterGradient(weight)),
             schedule);
}

}  // namespace convgrad::onednn
