// Implements attention, in f32 whatever the activations' dtype.
#include <functional>
#include <utility>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/core/program/operators/products.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"
#include "backends/onednn/networks/steps/products/network_attention_tiles.h"

namespace convgrad::onednn {
namespace {

enum Position { kQuery, kKey, kValue, kMask };

class Attention final : public NetworkGroup {
 public:
  Attention(const ProgramStep& step, const ProgramShapes& shapes)
      : step_(step), problem_(AttentionOf(step, shapes)) {
    scores_ = shapes.dims.at(step.operands[kQuery]);
    scores_.back() = problem_.keys;
  }

  void Forward(NetworkBuilder* builder) override {
    layout_.query = Bring(kQuery, builder);
    layout_.key = Bring(kKey, builder);
    layout_.value = Bring(kValue, builder);
    if (has_mask()) layout_.mask = BringMask(builder);
    const NetworkTensor y = builder->AddValue(step_.result);
    const NetworkTensor computed = ComputedIn(DataType::kF32, y, builder);
    Step step = NewStep("attention forward", 1, builder);
    step.writes.push_back(computed.buffer);
    step.function = [=, tiles = TilesFor(*builder), read = Reader(),
                     scratch = step.writes[0]](const RunContext& context) {
      tiles.Forward(read(context), context.Write<float>(computed.buffer),
                    context.Write<float>(scratch));
    };
    builder->Add(std::move(step));
    AddConversion(computed, y, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const NetworkTensor gradient = builder->GradientOf(step_.result);
    const BufferId dy = Converted(gradient, DataType::kF32, builder).buffer;
    NetworkTensor results[3], computed[3];
    for (const size_t position : {kQuery, kKey, kValue}) {
      results[position] =
          builder->NewGradient(step_.operands[position], Form::kRows);
      computed[position] =
          ComputedIn(DataType::kF32, results[position], builder);
    }
    Step step = NewBackward(dy, builder);
    for (const NetworkTensor& tensor : computed) {
      step.writes.push_back(tensor.buffer);
    }
    step.function = [=, tiles = TilesFor(*builder), read = Reader(),
                     to = step.writes](const RunContext& context) {
      tiles.Backward(read(context), context.Read<float>(dy),
                     {context.Write<float>(to[1]), context.Write<float>(to[2]),
                      context.Write<float>(to[3])},
                     context.Write<float>(to[0]));
    };
    builder->Add(std::move(step));
    for (const size_t position : {kQuery, kKey, kValue}) {
      AddConversion(computed[position], results[position], builder);
    }
    if (has_mask()) AddMaskGradient(dy, builder);
  }

 private:
  // Converts the operand to row-major f32.
  NetworkTensor BringRows(size_t position, NetworkBuilder* builder) {
    NetworkTensor rows =
        Converted(builder->Value(step_.operands[position], Form::kRows),
                  DataType::kF32, builder);
    operands_[position] = rows.buffer;
    return rows;
  }

  // Reads the operand where it lies, so that views of one product aren't
  // copied. Converts it if it isn't f32, or has no rows of one pitch.
  MatrixPlaces Bring(size_t position, NetworkBuilder* builder) {
    const RowsView view = builder->ViewOf(step_.operands[position]);
    std::vector<std::vector<StridedAxis>> axes = view.place.axes;
    const std::vector<StridedAxis> columns = axes.back();
    axes.pop_back();
    const std::vector<StridedAxis> rows = axes.back();
    axes.pop_back();
    const bool has_rows = columns.size() == 1 && columns[0].stride == 1 &&
                          rows.size() == 1 &&
                          rows[0].stride >= columns[0].extent;
    if (!has_rows || view.rows.blocks.dtype != DataType::kF32) {
      const Dims dims = BringRows(position, builder).dims;
      return {{{problem_.batch, dims.end()[-2] * dims.back()}}, dims.back()};
    }
    operands_[position] = view.location();
    MatrixPlaces places = {{}, rows[0].stride};
    for (const auto& axis : axes) {
      places.leading.insert(places.leading.end(), axis.begin(), axis.end());
    }
    return places;
  }

  MatrixPlaces BringMask(NetworkBuilder* builder) {
    const NetworkTensor mask = BringRows(kMask, builder);
    const Dims strides = BroadcastStrides(mask.dims, scores_);
    MatrixPlaces places = {{}, strides.end()[-2], strides.back()};
    for (size_t i = 0; i + 2 < scores_.size(); ++i) {
      places.leading.push_back({scores_[i], strides[i]});
    }
    return places;
  }

  bool has_mask() const { return !OperandAt(step_, kMask).empty(); }

  AttentionTiles TilesFor(const NetworkBuilder& builder) const {
    return AttentionTiles(problem_, layout_, builder.dtype() == DataType::kBF16,
                          builder.options().threads);
  }

  std::function<AttentionTensors(const RunContext&)> Reader() const {
    return [operands = operands_](const RunContext& context) {
      return AttentionTensors{context.Read<float>(operands[kQuery]),
                              context.Read<float>(operands[kKey]),
                              context.Read<float>(operands[kValue]),
                              context.Read<float>(operands[kMask])};
    };
  }

  // Returns a step that reads the operands and writes scratch memory. Its work
  // is `forwards` times a forward's.
  Step NewStep(absl::string_view kind, double forwards,
               NetworkBuilder* builder) const {
    Step step = {.kind = kind};
    for (const Location& operand : operands_) {
      step.reads.push_back(operand.buffer);
    }
    step.writes = {builder->AddArray<float>(TilesFor(*builder).scratch())};
    step.macs = forwards * static_cast<double>(problem_.batch) *
                static_cast<double>(problem_.queries * problem_.keys) *
                static_cast<double>(problem_.features + problem_.out_features);
    return step;
  }

  Step NewBackward(BufferId dy, NetworkBuilder* builder) const {
    Step step = NewStep("attention backward", 2.5, builder);
    step.reads.push_back(dy);
    return step;
  }

  // Computes the gradients of all scores, which only the mask's gradient needs.
  void AddMaskGradient(BufferId dy, NetworkBuilder* builder) const {
    const NetworkTensor result =
        builder->NewGradient(step_.operands[kMask], Form::kRows);
    const NetworkTensor computed = ComputedIn(DataType::kF32, result, builder);
    const BufferId scores = builder->AddArray<float>(*CheckedProduct(scores_));
    Step step = NewBackward(dy, builder);
    step.writes.push_back(scores);
    step.function = [=, tiles = TilesFor(*builder), read = Reader(),
                     scratch = step.writes[0]](const RunContext& context) {
      tiles.ScoreGradients(read(context), context.Read<float>(dy),
                           context.Write<float>(scores),
                           context.Write<float>(scratch));
    };
    builder->Add(std::move(step));
    AddSumsOfRepeats("attention backward", scores, scores_, computed, builder);
    AddConversion(computed, result, builder);
  }

  const ProgramStep& step_;
  const AttentionProblem problem_;
  Dims scores_;  // (batch..., L, S)
  // Operands in f32, by position.
  std::vector<Location> operands_ = std::vector<Location>(4);
  AttentionLayout layout_;
};

}  // namespace

std::vector<NetworkOperator> NetworkAttention() {
  return {{Operator::kAttention, &MakeOfStep<Attention>}};
}

}  // namespace convgrad::onednn
