#include "backends/onednn/networks/steps/convolutions/network_winograd.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/kernels/winograd/winograd.h"

namespace convgrad::onednn {
namespace {

// Transforming weights costs as much as some tiles' products, and transforming
// tiles as much as the products of some channels.
constexpr int64_t kLeastTiles = 64;
constexpr int64_t kLeastChannels = 32;
constexpr double kLeastFilled = 0.7;
constexpr double kLeastPlanes = 0.6;
// A part's scratch grows with the kernel's depth.
constexpr int64_t kMostDepth = 7;

// A training run computes a pass in rounds of output channels, because
// transformed weights, and sums for their gradient, take 16/9 of the memory of
// the weights. Each round transforms its input again, which is cheap beside the
// products of this number of blocks.
constexpr int64_t kMostRoundFloats = int64_t{2} << 20;
constexpr int64_t kLeastRoundBlocks = 8;

// Returns the rounds of a pass, at most `most`, so that each takes about
// kMostRoundFloats of the `floats` for all channels.
std::vector<winograd::Shape> RoundsOf(const winograd::Shape& shape,
                                      int64_t floats, int64_t most) {
  const int64_t rounds =
      std::clamp<int64_t>(std::min(CeilDiv(floats, kMostRoundFloats),
                                   shape.out_blocks() / kLeastRoundBlocks),
                          1, std::max<int64_t>(most, 1));
  // Even, because the passes take blocks in pairs.
  const int64_t size = CeilDiv(CeilDiv(shape.out_blocks(), rounds), 2) * 2;
  std::vector<winograd::Shape> shapes;
  for (int64_t first = 0; first < shape.out_blocks(); first += size) {
    shapes.push_back(rounds == 1 ? shape : SomeOutputs(shape, first, size));
  }
  return shapes;
}

// A step that returns whether it has computed its result.
using WinogradFunction = std::function<bool(const RunContext&)>;

// Returns the shape of the pass. That of a backward-weight is the forward's.
winograd::Shape ShapeOf(const FastPass& pass) {
  const ConvProblem& problem = pass.problem;
  const SpatialAxis& y = problem.axes[problem.axes.size() - 2];
  const SpatialAxis& x = problem.axes.back();
  winograd::Shape shape = {.batch = problem.batch,
                           .in_channels = problem.in_channels,
                           .out_channels = problem.out_channels,
                           .in_height = y.in,
                           .in_width = x.in,
                           .out_height = y.out,
                           .out_width = x.out,
                           .pad_top = y.pad_begin,
                           .pad_left = x.pad_begin,
                           .block = pass.x.blocks.block,
                           .dilation = y.dilation};
  if (problem.axes.size() == 3) {
    const SpatialAxis& z = problem.axes[0];
    shape.in_depth = z.in;
    shape.out_depth = z.out;
    shape.kernel_depth = z.kernel;
    shape.pad_front = z.pad_begin;
  }
  return pass.pass == Pass::kBackwardData ? BackwardDataShape(shape) : shape;
}

// Returns whether the kernel has the size and steps that the tiles need.
bool HasTiles(const ConvProblem& problem) {
  const size_t rank = problem.axes.size();
  if (rank < 2) return false;
  const SpatialAxis& y = problem.axes[rank - 2];
  const SpatialAxis& x = problem.axes.back();
  if (y.kernel != 3 || x.kernel != 3 || y.stride != 1 || x.stride != 1 ||
      y.dilation != x.dilation) {
    return false;
  }
  if (rank == 2) return true;
  const SpatialAxis& z = problem.axes[0];
  return z.stride == 1 && z.dilation == 1 && z.kernel <= kMostDepth;
}

// Returns whether most outputs of the tiles exist: with a dilation, many tiles
// may reach beyond the image.
bool FillsTiles(const winograd::Shape& shape) {
  return static_cast<double>(shape.batch * shape.out_depth * shape.out_height *
                             shape.out_width) >=
         kLeastFilled * 4 * static_cast<double>(shape.tiles());
}

// Returns whether most of the planes that the pass sums are in the image. The
// library skips the others, the tiles don't.
bool HasPlanes(const winograd::Shape& shape) {
  int64_t planes = 0;
  for (int64_t k = 0; k < shape.kernel_depth; ++k) {
    const int64_t first = std::max<int64_t>(shape.pad_front - k, 0);
    const int64_t end =
        std::min(shape.in_depth + shape.pad_front - k, shape.out_depth);
    planes += std::max<int64_t>(end - first, 0);
  }
  return static_cast<double>(planes) >=
         kLeastPlanes *
             static_cast<double>(shape.out_depth * shape.kernel_depth);
}

// Appends a step that runs `function`. Returns a buffer in which it leaves 0 if
// it has computed its result, else 1. `before` holds the same of steps without
// which it can't, or kNoBuffer.
BufferId AddStep(Step step, std::vector<BufferId> before,
                 WinogradFunction function, Schedule* schedule) {
  std::erase(before, kNoBuffer);
  const BufferId flag = schedule->AddArray<int32_t>(1);
  step.writes.push_back(flag);
  step.reads.insert(step.reads.end(), before.begin(), before.end());
  step.function = [=, run = std::move(function)](const RunContext& context) {
    const bool can = std::all_of(
        before.begin(), before.end(),
        [&](BufferId other) { return *context.Read<int32_t>(other) == 0; });
    *context.Write<int32_t>(flag) = can && run(context) ? 0 : 1;
  };
  schedule->Add(std::move(step));
  return flag;
}

winograd::Weights WeightsOf(const FastPass& pass) {
  return {.out_channels = pass.problem.out_channels,
          .in_channels = pass.problem.in_channels,
          .is_turned = pass.pass == Pass::kBackwardData,
          .block = pass.x.blocks.block,
          .kernel_depth = ShapeOf(pass).kernel_depth};
}

// Appends the transformation of the weights.
struct TransformedWeights {
  BufferId values;
  BufferId flag;
};
TransformedWeights AddTransformation(const FastPass& pass,
                                     const winograd::Weights& weights,
                                     Schedule* schedule) {
  const BufferId values =
      schedule->AddArray<float>(winograd::TransformedFloats(weights));
  const BufferId flag = AddStep(
      {.kind = kWeightLayoutKind,
       .reads = {pass.weight, pass.scales},
       .writes = {values}},
      {},
      [=, from = pass.weight, scales = pass.scales](const RunContext& context) {
        // A copy, because several threads may run the plan at once.
        winograd::Weights own = weights;
        own.values = context.Read<float>(from);
        own.scales = context.Read<float>(scales);
        return winograd::TransformWeights(own, context.Write<float>(values),
                                          context.thread_parts());
      },
      schedule);
  return {values, flag};
}

// Appends the pass for the output channels of `shape`, from transformed weights
// and after a step that has left its flag in `last`.
BufferId AddForwardStep(const FastPass& pass, const winograd::Shape& shape,
                        Step step, const TransformedWeights& weights,
                        BufferId last, NetworkBuilder* builder) {
  Schedule* const schedule = builder;
  const bool is_backward = pass.pass == Pass::kBackwardData;
  const BufferId from = is_backward ? pass.y.buffer : pass.x.buffer;
  const BufferId to = is_backward ? pass.x.buffer : pass.y.buffer;
  const BufferId scratch = schedule->AddArray<float>(
      winograd::ForwardScratch(shape) * builder->options().threads);
  step.reads = {from, weights.values, pass.bias, pass.addend};
  step.writes = {to, scratch};
  return AddStep(
      std::move(step), {last, weights.flag},
      [=, bias = pass.bias, addend = pass.addend,
       function = pass.function](const RunContext& context) {
        return winograd::Forward(
            shape,
            {context.Read<float>(bias), context.Read<float>(addend), function},
            {context.Read<float>(from), context.Read<float>(weights.values),
             context.Write<float>(to), context.Write<float>(scratch)},
            context.thread_parts());
      },
      schedule);
}

BufferId AddForward(const FastPass& pass, absl::string_view kind,
                    NetworkBuilder* builder) {
  const winograd::Shape shape = ShapeOf(pass);
  winograd::Weights weights = WeightsOf(pass);
  // At inference, the transformed weights are kept.
  const int64_t most = builder->has_backward() ? winograd::ForwardParts(shape) /
                                                     builder->options().threads
                                               : 1;
  const auto rounds =
      RoundsOf(shape, winograd::TransformedFloats(weights), most);
  const double macs = static_cast<double>(MultiplyAdds(pass.problem));
  BufferId flag = kNoBuffer;
  for (const winograd::Shape& round : rounds) {
    weights.first_out_block = round.first_out_block;
    weights.out_blocks = round.out_blocks();
    flag = AddForwardStep(
        pass, round,
        {.kind = kind, .macs = macs / static_cast<double>(rounds.size())},
        AddTransformation(pass, weights, builder), flag, builder);
  }
  return flag;
}

BufferId AddBackwardWeight(const FastPass& pass, absl::string_view kind,
                           NetworkBuilder* builder) {
  Schedule* const schedule = builder;
  const BufferId x = pass.x.buffer, dy = pass.y.buffer, dw = pass.weight;
  const winograd::Shape whole = ShapeOf(pass);
  const auto rounds = RoundsOf(whole, winograd::GradientSums(whole),
                               std::numeric_limits<int64_t>::max());
  const double macs = static_cast<double>(MultiplyAdds(pass.problem));
  BufferId flag = kNoBuffer;
  for (const winograd::Shape& shape : rounds) {
    const BufferId sums =
        schedule->AddArray<float>(winograd::GradientSums(shape));
    const BufferId scratch = schedule->AddArray<float>(
        winograd::GradientScratch(shape) * builder->options().threads);
    flag = AddStep(
        {.kind = kind,
         .reads = {x, dy},
         .writes = {dw, sums, scratch},
         .macs = macs / static_cast<double>(rounds.size())},
        {flag},
        [=](const RunContext& context) {
          return winograd::BackwardWeight(
              shape,
              {context.Read<float>(x), context.Read<float>(dy),
               context.Write<float>(dw), context.Write<float>(sums),
               context.Write<float>(scratch)},
              context.threads(), context.thread_parts());
        },
        schedule);
  }
  return flag;
}

}  // namespace

bool IsFastByWinograd(const FastPass& pass) {
  const ConvProblem& problem = pass.problem;
  if (!HasTiles(problem) || problem.groups != 1 || problem.transposed ||
      !HasF32Blocks(pass) ||
      std::min(problem.in_channels, problem.out_channels) < kLeastChannels) {
    return false;
  }
  const winograd::Shape shape = ShapeOf(pass);
  return shape.tiles() >= kLeastTiles && HasPlanes(shape) &&
         (shape.dilation == 1 || FillsTiles(shape));
}

BufferId AddWinograd(const FastPass& pass, absl::string_view kind,
                     NetworkBuilder* builder) {
  return pass.pass == Pass::kBackwardWeight
             ? AddBackwardWeight(pass, kind, builder)
             : AddForward(pass, kind, builder);
}

}  // namespace convgrad::onednn
