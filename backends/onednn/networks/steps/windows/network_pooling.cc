#include "backends/onednn/networks/steps/windows/network_pooling.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/core/program/operators/reductions.h"
#include "backends/core/program/operators/windows/pooling.h"
#include "backends/core/program/operators/windows/upsample.h"
#include "backends/core/status.h"
#include "backends/kernels/operators/windows/pooling.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// Returns the inputs that each output of a max_pool or avg_pool reads along an
// axis. An average's divisor, if any, belongs to the first axis.
PositionLists WindowsOf(const ProgramStep& step, const PoolAxis& axis,
                        bool is_first) {
  const PoolWindow window = {axis.in,       axis.kernel,    axis.stride,
                             axis.dilation, axis.pad_begin, axis.pad_end,
                             axis.out};
  if (step.op == Operator::kMaxPool) return WindowLists(window);
  const bool counts_pads = BoolAttribute(step, "count_include_pad");
  const int64_t divisor = IntAttribute(step, "divisor_override");
  return WindowLists(window, [&](int64_t output, int64_t inputs) {
    int64_t count = counts_pads ? AveragedElements(axis, output) : inputs;
    if (divisor != 0) count = is_first ? divisor : 1;
    return 1 / static_cast<float>(count);
  });
}

PositionLists CubicLists(const UpsampleAxis& axis) {
  PositionLists lists(axis.in, axis.out, 4 * axis.out);
  for (int64_t o = 0; o < axis.out; ++o) {
    for (const auto& tap : CubicSourceOf(axis, o).taps) {
      lists.Add(tap.index, tap.weight);
    }
    lists.EndList();
  }
  return lists;
}

// Returns the dims of the windows: the result's, including the axes that a
// reduction drops.
Dims WindowDimsOf(const ProgramStep& step, const ProgramShapes& shapes) {
  return IsReduction(step) ? ReducedAxesOf(step, shapes).kept
                           : shapes.dims.at(step.result);
}

PoolLists ListsOf(const ProgramStep& step, const ProgramShapes& shapes) {
  std::vector<PositionLists> axes;
  if (HasAdaptiveWindows(step) || IsReduction(step)) {
    const Dims& in = shapes.dims.at(step.operands[0]);
    const Dims out = WindowDimsOf(step, shapes);
    for (size_t i = 2; i < in.size(); ++i) {
      axes.push_back(AdaptiveLists(in[i], out[i], step.op == Operator::kSum));
    }
    return PoolLists::Of(std::move(axes));
  }
  if (step.op == Operator::kUpsample) {
    const std::string mode = WordAttribute(step, "mode");
    for (const UpsampleAxis& axis : UpsampleAxesOf(step, shapes)) {
      axes.push_back(
          mode == "nearest" ? NearestLists(axis.in, axis.out, axis.step)
          : mode == "bicubic"
              ? CubicLists(axis)
              : LinearLists(axis.in, axis.out, axis.step, axis.align_corners));
    }
    return PoolLists::Of(std::move(axes));
  }
  for (const PoolAxis& axis : PoolAxesOf(step, shapes)) {
    axes.push_back(WindowsOf(step, axis, axes.empty()));
  }
  return PoolLists::Of(std::move(axes));
}

// Returns the multiply-adds of all planes.
double MacsOf(const ChannelBlocks& blocks, const PoolLists& lists) {
  return static_cast<double>(blocks.batch * blocks.padded_channels()) *
         lists.taps();
}

class Pooling final : public NetworkGroup {
 public:
  explicit Pooling(const ProgramStep& step)
      : step_(step),
        is_max_(step.op == Operator::kMaxPool ||
                step.op == Operator::kAdaptiveMaxPool) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0]);
    y_ = TensorLike(WindowDimsOf(step_, builder->shapes()), builder->dtype(),
                    Form::kImage, builder->options().block);
    y_.buffer = builder->AddBuffer(y_.blocks.bytes());
    const NetworkTensor y = y_;
    x_blocks_ = x.blocks;
    lists_ =
        std::make_shared<const PoolLists>(ListsOf(step_, builder->shapes()));
    if (is_max_ && builder->has_backward()) {
      chosen_ = builder->AddArray<int32_t>(y.blocks.size());
    }
    Step step = {.kind = "pooling forward",
                 .reads = {x.buffer},
                 .writes = {y.buffer, chosen_},
                 .macs = MacsOf(x_blocks_, *lists_),
                 .table_bytes = lists_->bytes()};
    step.function = [=, is_max = is_max_, lists = lists_,
                     chosen = chosen_](const RunContext& context) {
      const auto run = context.parts();
      const convgrad::Pooling pooling = {x.blocks, lists.get()};
      if (is_max) {
        PoolMax(pooling, context.At(x.buffer), context.At(y.buffer),
                context.Write<int32_t>(chosen), run);
      } else {
        PoolWeighted(pooling, context.At(x.buffer), context.At(y.buffer), run);
      }
    };
    builder->Add(std::move(step));
    const Form form = builder->Like(step_.result).form;
    builder->AddValue(
        step_.result,
        InForm(y_, form, builder->options().block, builder).buffer);
  }

  void Backward(NetworkBuilder* builder) override {
    NetworkTensor gradient = builder->GradientOf(step_.result);
    gradient.dims = y_.dims;
    const BufferId dy =
        InForm(gradient, y_.form, builder->options().block, builder).buffer;
    const BufferId dx = builder->NewGradient(step_.operands[0]).buffer;
    const auto transposed =
        std::make_shared<const PoolLists>(lists_->Transposed());
    Step step = {.kind = "pooling backward",
                 .reads = {dy, chosen_},
                 .writes = {dx},
                 .macs = MacsOf(x_blocks_, *lists_),
                 .table_bytes = transposed->bytes()};
    step.function = [=, chosen = chosen_, x_blocks = x_blocks_,
                     y_blocks = y_.blocks](const RunContext& context) {
      const auto run = context.parts();
      if (chosen != kNoBuffer) {
        PoolMaxGradient(x_blocks,
                        {transposed.get(), context.Read<int32_t>(chosen),
                         context.At(dy), context.At(dx)},
                        run);
      } else {
        PoolWeighted({y_blocks, transposed.get()}, context.At(dy),
                     context.At(dx), run);
      }
    };
    builder->Add(std::move(step));
  }

 private:
  const ProgramStep& step_;
  const bool is_max_;
  std::shared_ptr<const PoolLists> lists_;
  ChannelBlocks x_blocks_;
  NetworkTensor y_;
  BufferId chosen_ = kNoBuffer;
};

NetworkOperator PoolingRow(Operator op) {
  return {op, &MakeOfStep<Pooling>, &CheckPositions, &PoolTableBytes};
}

}  // namespace

std::unique_ptr<NetworkGroup> MakePooling(const ProgramStep& step) {
  return std::make_unique<Pooling>(step);
}

// Checks that positions fit in 32 bits.
absl::Status CheckPositions(const ProgramStep& step,
                            const ProgramShapes& shapes,
                            const std::string& path) {
  TensorDescriptor value;
  for (const std::string& name : {step.operands[0], step.result}) {
    value.dims = shapes.dims.at(name);
    const auto spatial = absl::MakeConstSpan(value.dims).subspan(2);
    const std::optional<int64_t> positions = CheckedProduct(spatial);
    if (positions && *positions < int64_t{1} << 31) continue;
    return Unsupported(path, ToString(value),
                       "fewer than 2^31 positions of an image");
  }
  return absl::OkStatus();
}

int64_t PoolTableBytes(const ProgramStep& step, const ProgramShapes& shapes,
                       bool has_backward) {
  const Dims& x = shapes.dims.at(step.operands[0]);
  const Dims y = WindowDimsOf(step, shapes);
  const StepDims dims(step, shapes);
  int64_t bytes = 0;
  for (size_t i = 2; i < x.size(); ++i) {
    const int64_t entries = SpecOf(step.op).taps(dims, i - 2);
    bytes = SaturatingAdd(bytes, PositionLists::BytesFor(y[i], entries));
    if (!has_backward) continue;
    bytes = SaturatingAdd(bytes, PositionLists::BytesFor(x[i], entries));
  }
  return bytes;
}

std::vector<NetworkOperator> NetworkPoolings() {
  return {PoolingRow(Operator::kMaxPool), PoolingRow(Operator::kAvgPool),
          PoolingRow(Operator::kAdaptiveAvgPool),
          PoolingRow(Operator::kAdaptiveMaxPool),
          PoolingRow(Operator::kUpsample)};
}

}  // namespace convgrad::onednn
