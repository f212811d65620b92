// Implements pad and index_select.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/program/operators/moves.h"
#include "backends/core/status.h"
#include "backends/kernels/operators/element_runs.h"
#include "backends/kernels/tokens/axis_gather.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

constexpr absl::string_view kPadKind = "pad";
constexpr absl::string_view kSelectKind = "index_select";

// Returns how many numbers the tables of a pad have.
int64_t TableSize(const std::vector<PadAxis>& axes, bool is_gradient) {
  int64_t size = 0;
  for (const PadAxis& axis : axes) {
    if (!axis.is_padded()) continue;
    size += axis.out;
    if (is_gradient) size += ResultListSize({axis.in, axis.out});
  }
  return size;
}

// Returns the gather of a pad, with tables that it writes to `numbers`.
AxisGather GatherOf(const ProgramStep& step, const std::vector<PadAxis>& axes,
                    DataType dtype, bool is_gradient, int64_t* numbers) {
  AxisGather gather = {{}, dtype};
  for (const PadAxis& axis : axes) {
    GatherAxis& added = gather.axes.emplace_back(GatherAxis{axis.in, axis.out});
    if (!axis.is_padded()) continue;
    ListPadSources(step, axis, numbers);
    added.sources = numbers;
    numbers += axis.out;
    if (!is_gradient) continue;
    ListResults(added, numbers);
    added.results = numbers;
    numbers += ResultListSize(added);
  }
  return gather;
}

// The functions capture copies, because a plan may outlive its program.
class Pad final : public NetworkGroup {
 public:
  explicit Pad(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(step_.result);
    const NetworkTensor x = builder->Value(step_.operands[0], y.form);
    form_ = y.form;
    SetAxes(x, builder->shapes());
    const auto value = static_cast<float>(FloatAttribute(step_, "value"));
    const BufferId numbers =
        builder->AddArray<int64_t>(TableSize(axes_, false));
    builder->Add(kPadKind, {x.buffer}, {y.buffer, numbers},
                 [=, step = step_, axes = axes_](const RunContext& context) {
                   const auto run = context.parts();
                   GatherAxes(GatherOf(step, axes, y.blocks.dtype, false,
                                       context.Write<int64_t>(numbers)),
                              context.At(x.buffer), value, context.At(y.buffer),
                              run);
                   const bool has_padding =
                       y.blocks.padded_channels() != y.blocks.channels;
                   if (value != 0 && has_padding) {
                     ClearPadding(y.blocks, context.At(y.buffer), run);
                   }
                 });
  }

  void Backward(NetworkBuilder* builder) override {
    const NetworkTensor dy = builder->GradientOf(step_.result);
    const BufferId dx = builder->NewGradient(step_.operands[0], form_).buffer;
    const BufferId numbers = builder->AddArray<int64_t>(TableSize(axes_, true));
    builder->Add(kPadKind, {dy.buffer}, {dx, numbers},
                 [=, step = step_, axes = axes_](const RunContext& context) {
                   SumGathered(GatherOf(step, axes, dy.blocks.dtype, true,
                                        context.Write<int64_t>(numbers)),
                               context.At(dy.buffer), context.At(dx),
                               context.parts());
                 });
  }

 private:
  // An image's channels aren't padded. They are in blocks, inside all other
  // axes.
  void SetAxes(const NetworkTensor& x, const ProgramShapes& shapes) {
    axes_ = PadAxesOf(step_, shapes);
    if (form_ != Form::kImage) return;
    axes_[1] = {x.blocks.block_count(), x.blocks.block_count(), 0};
    axes_.push_back({x.blocks.block, x.blocks.block, 0});
  }

  const ProgramStep& step_;
  Form form_ = Form::kImage;
  std::vector<PadAxis> axes_;
};

// Each run checks the index and uses a copy of it.
class IndexSelect final : public NetworkGroup {
 public:
  IndexSelect(const ProgramStep& step, const ProgramShapes& shapes)
      : step_(step), axis_(*StepDims(step, shapes).Axis("axis")) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0], Form::kRows);
    const BufferId y = builder->AddValue(step_.result).buffer;
    SetShape(x, builder->shapes().dims.at(step_.operands[1]));
    const BufferId sources = AddNumbers(selected_.out, builder);
    Step step = NewStep({x.buffer}, {y, sources}, builder);
    step.function = [=, gather = gather_, selected = selected_,
                     index = step.reads[0]](const RunContext& context) {
      AxisGather own = gather;
      own.axes[1].sources = CopyIndex(selected, context.Read<int64_t>(index),
                                      context.Write<int64_t>(sources));
      GatherAxes(own, context.At(x.buffer), 0, context.At(y), context.parts());
    };
    builder->Add(std::move(step));
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    const BufferId dx =
        builder->NewGradient(step_.operands[0], Form::kRows).buffer;
    const BufferId sources = AddNumbers(selected_.out, builder);
    const BufferId results = AddNumbers(ResultListSize(selected_), builder);
    Step step = NewStep({dy}, {dx, sources, results}, builder);
    step.function = [=, gather = gather_, selected = selected_,
                     index = step.reads[0]](const RunContext& context) {
      AxisGather own = gather;
      own.axes[1].sources = CopyIndex(selected, context.Read<int64_t>(index),
                                      context.Write<int64_t>(sources));
      ListResults(own.axes[1], context.Write<int64_t>(results));
      own.axes[1].results = context.Read<int64_t>(results);
      SumGathered(own, context.At(dy), context.At(dx), context.parts());
    };
    builder->Add(std::move(step));
  }

 private:
  static BufferId AddNumbers(int64_t count, NetworkBuilder* builder) {
    return builder->AddArray<int64_t>(count);
  }

  // Returns the copy, in which each number is a valid index.
  static const int64_t* CopyIndex(const GatherAxis& selected,
                                  const int64_t* index, int64_t* copy) {
    for (int64_t i = 0; i < selected.out; ++i) {
      copy[i] = std::clamp<int64_t>(index[i], 0, selected.in - 1);
    }
    return copy;
  }

  void SetShape(const NetworkTensor& x, const Dims& index) {
    int64_t outer = 1, inner = 1;
    for (size_t i = 0; i < axis_; ++i) outer *= x.dims[i];
    for (size_t i = axis_ + 1; i < x.dims.size(); ++i) inner *= x.dims[i];
    selected_ = {x.dims[axis_], 1};
    for (const int64_t extent : index) selected_.out *= extent;
    gather_ = {{{outer, outer}, selected_, {inner, inner}}, x.blocks.dtype};
  }

  // Returns a step that checks the index, which it reads first.
  Step NewStep(std::vector<BufferId> reads, std::vector<BufferId> writes,
               NetworkBuilder* builder) const {
    const std::string& name = step_.operands[1];
    const BufferId index = builder->InputDescriptor(name) != nullptr
                               ? builder->InputBuffer(name)
                               : builder->Parameter(name);
    reads.insert(reads.begin(), index);
    return {.kind = kSelectKind,
            .reads = std::move(reads),
            .writes = std::move(writes),
            // Captures a copy, because a plan may outlive its program.
            .check = [=, step = step_, selected = selected_](
                         const RunContext& context) -> absl::Status {
              for (int64_t i = 0; i < selected.out; ++i) {
                RETURN_IF_ERROR(CheckIndex(
                    step, i, context.Read<int64_t>(index)[i], selected.in));
              }
              return absl::OkStatus();
            }};
  }

  const ProgramStep& step_;
  const size_t axis_;
  GatherAxis selected_{1, 1};
  AxisGather gather_;
};

}  // namespace

std::vector<NetworkOperator> NetworkMoves() {
  return {{Operator::kPad, &MakeOfStep<Pad>},
          {Operator::kIndexSelect, &MakeOfStep<IndexSelect>}};
}

}  // namespace convgrad::onednn
