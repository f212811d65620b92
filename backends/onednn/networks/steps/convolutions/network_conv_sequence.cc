#include "backends/onednn/networks/steps/convolutions/network_conv_sequence.h"

#include "absl/strings/match.h"
#include "backends/kernels/convolutions/sequence_convolution.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_pass.h"

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

// Appends a depthwise forward or backward-data.
void AddDepthwise(const FastPass& pass, Step step, Schedule* schedule) {
  const SequenceShape shape = ShapeOf(pass);
  const BufferId from = step.reads[0], to = step.writes[0];
  const BufferId arranged = schedule->AddArray<float>(DepthwiseFloats(shape));
  step.writes.push_back(arranged);
  step.reads = {from, pass.weight, pass.bias};
  step.function = [=, weight = pass.weight, bias = pass.bias,
                   is_mirrored = pass.pass == Pass::kBackwardData](
                      const RunContext& context) {
    ConvolveSequencesDepthwise(
        shape, context.Read<float>(from),
        {context.Read<float>(weight), is_mirrored, context.Read<float>(bias)},
        context.parts(), context.Write<float>(arranged),
        context.Write<float>(to));
  };
  schedule->Add(std::move(step));
}

// Appends a forward or backward-data.
void AddSums(const FastPass& pass, Step step, Schedule* schedule) {
  const SequenceShape shape = ShapeOf(pass);
  const BufferId from = step.reads[0], to = step.writes[0];
  const BufferId arranged = schedule->AddArray<float>(ArrangedFloats(shape));
  schedule->Add({.kind = kWeightLayoutKind,
                 .reads = {pass.weight, pass.bias},
                 .writes = {arranged},
                 .function = [=, weight = pass.weight, bias = pass.bias,
                              is_mirrored = pass.pass == Pass::kBackwardData](
                                 const RunContext& context) {
                   ArrangeWeights(shape,
                                  {context.Read<float>(weight), is_mirrored,
                                   context.Read<float>(bias)},
                                  context.parts(),
                                  context.Write<float>(arranged));
                 }});
  step.reads.push_back(arranged);
  step.function = [=](const RunContext& context) {
    ConvolveSequences(shape, context.Read<float>(from),
                      context.Read<float>(arranged), context.parts(),
                      context.Write<float>(to));
  };
  schedule->Add(std::move(step));
}

void AddGradient(const FastPass& pass, Step step, Schedule* schedule) {
  const SequenceShape shape = ShapeOf(pass);
  const BufferId sums = schedule->AddArray<float>(ArrangedFloats(shape));
  step.reads = {pass.x.buffer, pass.y.buffer};
  step.writes = {pass.weight, sums};
  step.function = [=, x = pass.x.buffer, dy = pass.y.buffer,
                   dw = pass.weight](const RunContext& context) {
    AddUpSequenceGradient(shape, context.Read<float>(x),
                          context.Read<float>(dy), context.parts(),
                          context.Write<float>(sums), context.Write<float>(dw));
  };
  schedule->Add(std::move(step));
}

// Returns whether the library has a kernel of its own for the pass.
bool HasKernel(const FastPass& pass) {
  const auto found =
      MakePassDesc(pass.pass, pass.problem,
                   {DescOf(pass.x),
                    ConvWeightDesc(pass.pass, pass.problem, DataType::kF32),
                    DescOf(pass.y),
                    {}});
  return found && !IsPlainLoop(found) &&
         !absl::StrContains(found.impl_info_str(), "gemm");
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
  const bool is_backward = pass.pass == Pass::kBackwardData;
  Step step = {.kind = kind,
               .reads = {is_backward ? pass.y.buffer : pass.x.buffer},
               .writes = {is_backward ? pass.x.buffer : pass.y.buffer},
               .macs = static_cast<double>(MultiplyAdds(pass.problem))};
  if (pass.pass == Pass::kBackwardWeight) {
    AddGradient(pass, std::move(step), schedule);
  } else if (IsDepthwise(pass.problem)) {
    AddDepthwise(pass, std::move(step), schedule);
  } else {
    AddSums(pass, std::move(step), schedule);
  }
}

}  // namespace convgrad::onednn
