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

// Returns the layout of a caller's weight with `dims`.
PhysicalLayout WeightLayout(const Dims& dims) {
  return convgrad::PhysicalLayoutOf(
      TensorDescriptor{DataType::kF32, Layout::kOIX, dims, 0, 1});
}

// Returns whether the library has a fast pass of the padded problem.
bool HasPass(Pass pass, const ConvProblem& padded, const NetworkTensor& y) {
  const auto found =
      MakePassDesc(pass, padded,
                   {PaddedImagesDesc(padded),
                    ConvWeightDesc(pass, padded, DataType::kBF16),
                    DescOf(y),
                    {}});
  return found && !IsPlainLoop(found);
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
  return HasPass(Pass::kForward, padded, y) &&
         (!builder.has_backward() || HasPass(Pass::kBackwardWeight, padded, y));
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
  LibraryTensor padded = AddWeightBuffer(problem, &builder->schedule());
  const Dims& dims = builder->shapes().dims.at(weight);
  AddReorder(Reorder::Make(WeightLayout(dims), DataType::kF32,
                           PaddedLayout(dims), DataType::kF32),
             builder->Parameter(weight), padded.location, &builder->schedule());
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
               .dtype = DataType::kBF16,
               .bias = builder->Parameter(OperandAt(step_, 2)),
               .kind = "conv forward",
               .macs = static_cast<double>(MultiplyAdds(problem_)),
               .name = step_.result},
              &builder->schedule());
}

void PaddedConvolution::AddBackwardWeight(const NetworkTensor& dy,
                                          NetworkBuilder* builder) const {
  const ConvProblem padded = PaddedProblem(problem_);
  Schedule* const schedule = &builder->schedule();
  const LibraryTensor dw = AddWeightBuffer(padded, schedule);
  AddConvPass({.pass = Pass::kBackwardWeight,
               .problem = padded,
               .data = images_,
               .weight = dw,
               .out = TensorOf(dy),
               .dtype = DataType::kBF16,
               .kind = "conv backward weight",
               .macs = static_cast<double>(MultiplyAdds(problem_)),
               .name = step_.result},
              schedule);
  const std::string& weight = step_.operands[1];
  const Dims& dims = builder->shapes().dims.at(weight);
  AddReorder(Reorder::Make(PaddedLayout(dims), DataType::kF32,
                           WeightLayout(dims), DataType::kF32),
             dw.location, builder->NewParameterGradient(weight), schedule);
}

}  // namespace convgrad::onednn
