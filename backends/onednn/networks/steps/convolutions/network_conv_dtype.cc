#include "backends/onednn/networks/steps/convolutions/network_conv_dtype.h"

#include <algorithm>

#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"

namespace convgrad::onednn {
namespace {

// Returns whether some taps read only padding.
bool HasDeadTaps(const ConvProblem& problem) {
  const Lowering lowering(problem);
  return lowering.Crops(Role::kWeight) || lowering.has_dead_inner_taps();
}

bool IsDense(const ConvProblem& problem) {
  return std::all_of(
      problem.axes.begin(), problem.axes.end(),
      [](const SpatialAxis& axis) { return axis.dilation == 1; });
}

// Returns whether the library's bf16 passes read no neighbours of the channels
// that they sum: with channels last, only pairs of channels are read.
bool LiesWellForBf16(const NetworkTensor& tensor) {
  if (tensor.blocks.dtype != DataType::kBF16) return false;
  return IsInBlocks(tensor, DataType::kBF16) ||
         (tensor.blocks.channels > kFewChannels &&
          tensor.blocks.channels % 2 == 0);
}

}  // namespace

bool IsRightInBf16(const ConvProblem& problem) {
  return (problem.groups == 1 || IsDepthwise(problem)) &&
         problem.axes.size() == 2 && IsDense(problem) && !HasDeadTaps(problem);
}

DataType ConvolutionDtype(const ConvProblem& problem, bool is_mirrored,
                          absl::Span<const Pass> passes, const NetworkTensor& x,
                          const NetworkTensor& y,
                          const NetworkBuilder& builder) {
  const bool is_native =
      builder.options().native_bf16 && builder.dtype() == DataType::kBF16 &&
      LiesWellForBf16(x) && LiesWellForBf16(y) && IsRightInBf16(problem);
  if (!is_native) return DataType::kF32;
  const dnnl::memory::desc out = DescOf(is_mirrored ? x : y);
  NetworkTensor data = is_mirrored ? y : x;
  for (const Pass pass : passes) {
    // Our kernel computes what the library's doesn't.
    if (pass == Pass::kBackwardWeight && IsDepthwise(problem)) continue;
    // A transposed forward keeps f32 until its bias is added.
    data.blocks.dtype = is_mirrored && pass == Pass::kBackwardData
                            ? DataType::kF32
                            : DataType::kBF16;
    if (!FindFastPass(pass, problem, DescOf(data), out)) return DataType::kF32;
  }
  return DataType::kBF16;
}

LibraryTensor ConvolutionWeight(const std::string& name,
                                const ConvProblem& problem, DataType dtype,
                                NetworkBuilder* builder) {
  BufferId weight = builder->Parameter(name);
  if (dtype != builder->dtype()) {
    weight = RoundedWeights(weight, builder->shapes().dims.at(name),
                            builder->dtype(), builder);
  }
  return {weight, PlainWeightDesc(problem)};
}

}  // namespace convgrad::onednn
