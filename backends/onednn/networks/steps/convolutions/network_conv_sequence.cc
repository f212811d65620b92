#include "backends/onednn/networks/steps/convolutions/network_conv_sequence.h"

#include "absl/strings/match.h"
#include "backends/kernels/convolutions/sequence_convolution.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"

namespace convgrad::onednn {
namespace {

SequenceShape ShapeOf(const FastPass& pass) {
  const ConvProblem& problem = pass.problem;
  const SequenceShape shape = {.batch = problem.batch,
                               .in_channels = problem.in_channels,
                               .out_channels = problem.out_channels,
                               .block = pass.x.blocks.block,
                               .axis = AxisOf(problem.axes[0])};
  return pass.pass == Pass::kBackwardData ? MirrorOf(shape) : shape;
}

// Returns whether the library has a kernel of its own for the pass.
bool HasKernel(const FastPass& pass) {
  const auto found =
      FindFastPass(pass.pass, pass.problem, DescOf(pass.x), DescOf(pass.y));
  return found && !absl::StrContains(found.impl_info_str(), "gemm");
}

}  // namespace

bool IsFastAsSequence(const FastPass& pass) {
  const ConvProblem& problem = pass.problem;
  if (problem.axes.size() != 1 || problem.transposed ||
      (problem.groups > 1 && !IsDepthwise(problem)) || !HasF32Blocks(pass)) {
    return false;
  }
  const SpatialAxis& axis = problem.axes[0];
  // Keeps positions within an int64.
  const bool is_small = axis.out > 0 && axis.stride <= axis.in;
  const bool is_depthwise_gradient =
      IsDepthwise(problem) && pass.pass == Pass::kBackwardWeight;
  const bool has_pass = pass.pass != Pass::kBackwardData || axis.stride == 1;
  return is_small && has_pass && !is_depthwise_gradient && !HasKernel(pass);
}

void AddSequencePass(const FastPass& pass, absl::string_view kind,
                     Schedule* schedule) {
  const SequenceShape shape = ShapeOf(pass);
  const auto macs = static_cast<double>(MultiplyAdds(pass.problem));
  const BufferId x = pass.x.buffer, y = pass.y.buffer;
  const BufferId weight = pass.weight, bias = pass.bias;
  if (pass.pass == Pass::kBackwardWeight) {
    const BufferId sums = schedule->AddArray<float>(ArrangedFloats(shape));
    schedule->Add(
        kind, {x, y}, {weight, sums},
        [=](const RunContext& context) {
          AddUpSequenceGradient(shape, context.Read<float>(x),
                                context.Read<float>(y), context.parts(),
                                context.Write<float>(sums),
                                context.Write<float>(weight));
        },
        macs);
    return;
  }
  const bool is_mirrored = pass.pass == Pass::kBackwardData;
  const BufferId from = is_mirrored ? y : x, to = is_mirrored ? x : y;
  const auto weights = [=](const RunContext& context) {
    return SequenceWeights{context.Read<float>(weight), is_mirrored,
                           context.Read<float>(bias)};
  };
  if (IsDepthwise(pass.problem)) {
    const BufferId arranged = schedule->AddArray<float>(DepthwiseFloats(shape));
    schedule->Add(
        kind, {from, weight, bias}, {to, arranged},
        [=](const RunContext& context) {
          ConvolveSequencesDepthwise(shape, context.Read<float>(from),
                                     weights(context), context.parts(),
                                     context.Write<float>(arranged),
                                     context.Write<float>(to));
        },
        macs);
    return;
  }
  const BufferId arranged = schedule->AddArray<float>(ArrangedFloats(shape));
  schedule->Add(kWeightLayoutKind, {weight, bias}, {arranged},
                [=](const RunContext& context) {
                  ArrangeWeights(shape, weights(context), context.parts(),
                                 context.Write<float>(arranged));
                });
  schedule->Add(
      kind, {from, arranged}, {to},
      [=](const RunContext& context) {
        ConvolveSequences(shape, context.Read<float>(from),
                          context.Read<float>(arranged), context.parts(),
                          context.Write<float>(to));
      },
      macs);
}

}  // namespace convgrad::onednn
