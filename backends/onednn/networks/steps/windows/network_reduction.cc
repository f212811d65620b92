// Implements sum, mean, amax, norm and var, by windows of an image or on rows.
#include <memory>
#include <vector>

#include "backends/core/program/operators/reductions.h"
#include "backends/kernels/tokens/axis_reduction.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"
#include "backends/onednn/networks/steps/windows/network_pooling.h"

namespace convgrad::onednn {
namespace {

Reduction KindOf(Operator op) {
  switch (op) {
    case Operator::kMean:
      return Reduction::kMean;
    case Operator::kAmax:
      return Reduction::kMaximum;
    case Operator::kNorm:
      return Reduction::kNorm;
    case Operator::kVar:
      return Reduction::kVariance;
    default:
      return Reduction::kSum;
  }
}

bool MayBePooled(Operator op) {
  return op == Operator::kMean || op == Operator::kSum;
}

class ReductionGroup final : public NetworkGroup {
 public:
  ReductionGroup(const ProgramStep& step, const ProgramShapes& shapes)
      : step_(step), axes_(ReducedAxesOf(step, shapes)) {}

  void Forward(NetworkBuilder* builder) override {
    const std::string& operand = step_.operands[0];
    const bool is_image = builder->Like(operand).form == Form::kImage;
    if (is_image && axes_.is_spatial && MayBePooled(step_.op)) {
      pooling_ = MakePooling(step_);
      return pooling_->Forward(builder);
    }
    const NetworkTensor x = builder->Value(operand, Form::kRows);
    x_ = x.buffer;
    y_ = builder->AddValue(step_.result).buffer;
    reduction_ = {KindOf(step_.op), x.dims, axes_.kept, x.blocks.dtype,
                  IntAttribute(step_, "correction")};
    builder->Add(
        "reduction forward", {x_}, {y_},
        [=, reduction = reduction_, x = x_, y = y_](const RunContext& context) {
          ReduceAxes(reduction, context.At(x), context.At(y), context.parts());
        });
  }

  void Backward(NetworkBuilder* builder) override {
    if (pooling_ != nullptr) return pooling_->Backward(builder);
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    const BufferId dx =
        builder->NewGradient(step_.operands[0], Form::kRows).buffer;
    Step step = {.kind = "reduction backward", .reads = {dy}, .writes = {dx}};
    if (!MayBePooled(step_.op)) {
      step.reads.insert(step.reads.end(), {x_, y_});
    }
    step.function = [=, reduction = reduction_, x = x_,
                     y = y_](const RunContext& context) {
      ReduceAxesGradient(
          reduction,
          {context.At(x), context.At(y), context.At(dy), context.At(dx)},
          context.parts());
    };
    builder->Add(std::move(step));
  }

 private:
  const ProgramStep& step_;
  const ReducedAxes axes_;
  std::unique_ptr<NetworkGroup> pooling_;  // null: none
  AxisReduction reduction_;
  BufferId x_ = kNoBuffer, y_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkReductions() {
  std::vector<NetworkOperator> rows;
  for (const Operator op : {Operator::kMean, Operator::kSum, Operator::kAmax,
                            Operator::kNorm, Operator::kVar}) {
    NetworkOperator row = {op, &MakeOfStep<ReductionGroup>};
    if (MayBePooled(op)) {
      row.check = &CheckPositions;
      row.table_bytes = &PoolTableBytes;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace convgrad::onednn
