#include "backends/onednn/networks/steps/products/network_winograd.h"

#include <algorithm>

#include "backends/kernels/winograd/winograd.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kFloat = sizeof(float);

// Transforming weights costs as much as some tiles' products, and transforming
// tiles as much as the products of some channels.
constexpr int64_t kLeastTiles = 64;
constexpr int64_t kLeastChannels = 32;

// A step that returns whether it has computed its result.
using WinogradFunction = std::function<bool(const RunContext&)>;

// Returns the shape of the step's forward.
winograd::Shape ShapeOf(const WinogradPass& pass) {
  const ConvProblem& problem = pass.problem;
  const SpatialAxis& y = problem.axes[0];
  const SpatialAxis& x = problem.axes[1];
  return {.batch = problem.batch,
          .in_channels = problem.in_channels,
          .out_channels = problem.out_channels,
          .in_height = y.in,
          .in_width = x.in,
          .out_height = y.out,
          .out_width = x.out,
          .pad_top = y.pad_begin,
          .pad_left = x.pad_begin,
          .block = pass.x.blocks.block};
}

bool IsBlockedF32(const ChannelBlocks& blocks) {
  return blocks.dtype == DataType::kF32 &&
         (blocks.block == 8 || blocks.block == 16);
}

bool IsThreeWideAndDense(const SpatialAxis& axis) {
  return axis.kernel == 3 && axis.stride == 1 && axis.dilation == 1;
}

// Appends a step that runs `function` and leaves in `flag` whether it is true
// that it hasn't computed its result; `before`, if any, holds the same of a
// step without which it can't.
void AddStep(Step step, BufferId flag, BufferId before,
             WinogradFunction function, Schedule* schedule) {
  step.writes.push_back(flag);
  if (before != kNoBuffer) step.reads.push_back(before);
  step.function = [=, run = std::move(function)](const RunContext& context) {
    const bool can = before == kNoBuffer || *context.Read<int32_t>(before) == 0;
    *context.Write<int32_t>(flag) = can && run(context) ? 0 : 1;
  };
  schedule->Add(std::move(step));
}

// Appends the transformation of the weights.
struct TransformedWeights {
  BufferId values;
  BufferId flag;
};
TransformedWeights AddTransformation(const WinogradPass& pass,
                                     Schedule* schedule) {
  const winograd::Weights weights = {
      .out_channels = pass.problem.out_channels,
      .in_channels = pass.problem.in_channels,
      .is_turned = pass.pass == Pass::kBackwardData,
      .block = pass.x.blocks.block};
  const TransformedWeights to = {
      schedule->AddBuffer(winograd::TransformedFloats(weights) * kFloat),
      schedule->AddBuffer(int64_t{sizeof(int32_t)})};
  Step step = {
      .kind = kWeightLayoutKind, .reads = {pass.weight}, .writes = {to.values}};
  if (pass.scales != kNoBuffer) step.reads.push_back(pass.scales);
  AddStep(
      std::move(step), to.flag, kNoBuffer,
      [=, from = pass.weight, scales = pass.scales](const RunContext& context) {
        // A copy, because several threads may run the plan at once.
        winograd::Weights own = weights;
        own.values = context.Read<float>(from);
        own.scales = context.Read<float>(scales);
        return winograd::TransformWeights(own, context.Write<float>(to.values),
                                          [&](int64_t count, auto part) {
                                            context.ForThreadParts(count, part);
                                          });
      },
      schedule);
  return to;
}

BufferId AddForward(const WinogradPass& pass, absl::string_view kind,
                    NetworkBuilder* builder) {
  Schedule* const schedule = &builder->schedule();
  const TransformedWeights weights = AddTransformation(pass, schedule);
  const bool is_backward = pass.pass == Pass::kBackwardData;
  const winograd::Shape shape =
      is_backward ? BackwardDataShape(ShapeOf(pass)) : ShapeOf(pass);
  const BufferId from = is_backward ? pass.y.buffer : pass.x.buffer;
  const BufferId to = is_backward ? pass.x.buffer : pass.y.buffer;
  const BufferId flag = schedule->AddBuffer(int64_t{sizeof(int32_t)});
  const BufferId scratch = schedule->AddBuffer(
      winograd::ForwardScratch(shape) * kFloat * builder->options().threads);
  Step step = {.kind = kind,
               .reads = {from, weights.values},
               .writes = {to, scratch},
               .macs = static_cast<double>(MultiplyAdds(pass.problem))};
  for (const BufferId buffer : {pass.bias, pass.addend}) {
    if (buffer != kNoBuffer) step.reads.push_back(buffer);
  }
  AddStep(
      std::move(step), flag, weights.flag,
      [=, bias = pass.bias, addend = pass.addend,
       function = pass.function](const RunContext& context) {
        return winograd::Forward(
            shape,
            {context.Read<float>(bias), context.Read<float>(addend), function},
            {context.Read<float>(from), context.Read<float>(weights.values),
             context.Write<float>(to), context.Write<float>(scratch)},
            [&](int64_t count, auto part) {
              context.ForThreadParts(count, part);
            });
      },
      schedule);
  return flag;
}

BufferId AddBackwardWeight(const WinogradPass& pass, absl::string_view kind,
                           NetworkBuilder* builder) {
  Schedule* const schedule = &builder->schedule();
  const winograd::Shape shape = ShapeOf(pass);
  const BufferId x = pass.x.buffer, dy = pass.y.buffer, dw = pass.weight;
  const BufferId flag = schedule->AddBuffer(int64_t{sizeof(int32_t)});
  const BufferId sums =
      schedule->AddBuffer(winograd::GradientSums(shape) * kFloat);
  const BufferId scratch = schedule->AddBuffer(
      winograd::GradientScratch(shape) * kFloat * builder->options().threads);
  AddStep(
      {.kind = kind,
       .reads = {x, dy},
       .writes = {dw, sums, scratch},
       .macs = static_cast<double>(MultiplyAdds(pass.problem))},
      flag, kNoBuffer,
      [=](const RunContext& context) {
        return winograd::BackwardWeight(
            shape,
            {context.Read<float>(x), context.Read<float>(dy),
             context.Write<float>(dw), context.Write<float>(sums),
             context.Write<float>(scratch)},
            [&](int64_t count, auto part) {
              context.ForThreadParts(count, part);
            });
      },
      schedule);
  return flag;
}

}  // namespace

bool IsFastByWinograd(const WinogradPass& pass) {
  const ConvProblem& problem = pass.problem;
  return problem.axes.size() == 2 && problem.groups == 1 &&
         !problem.transposed &&
         std::all_of(problem.axes.begin(), problem.axes.end(),
                     IsThreeWideAndDense) &&
         IsBlockedF32(pass.x.blocks) && IsBlockedF32(pass.y.blocks) &&
         pass.x.blocks.block == pass.y.blocks.block &&
         std::min(problem.in_channels, problem.out_channels) >=
             kLeastChannels &&
         ShapeOf(pass).tiles() >= kLeastTiles;
}

BufferId AddWinograd(const WinogradPass& pass, absl::string_view kind,
                     NetworkBuilder* builder) {
  return pass.pass == Pass::kBackwardWeight
             ? AddBackwardWeight(pass, kind, builder)
             : AddForward(pass, kind, builder);
}

}  // namespace convgrad::onednn
