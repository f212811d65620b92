// Comparisons, and choices by their results. Operands are repeated to the dims
// of the result; a constant may replace the last one, b.
#include "backends/onednn/networks/schedule/network_guard.h"
#include "backends/onednn/networks/steps/elements/network_repeated.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

struct ComparisonRow {
  Operator op;
  Combination combination;
};

constexpr ComparisonRow kComparisons[] = {{Operator::kEq, Combination::kEq},
                                          {Operator::kLt, Combination::kLt},
                                          {Operator::kLe, Combination::kLe},
                                          {Operator::kGt, Combination::kGt},
                                          {Operator::kGe, Combination::kGe}};

Combination CombinationOf(Operator op) {
  size_t i = 0;
  while (kComparisons[i].op != op) ++i;
  return kComparisons[i].combination;
}

// What comparisons and choices share: operands, and the forward's combination.
class Mask : public NetworkGroup {
 public:
  explicit Mask(const ProgramStep& step) : step_(step) {}

 protected:
  bool IsRepeated(const std::string& operand,
                  const NetworkBuilder& builder) const {
    return builder.shapes().dims.at(operand) != y_.dims;
  }

  // Returns the operand in the dims and the form of the result.
  BufferId Repeated(const std::string& operand, NetworkBuilder* builder) const {
    return IsRepeated(operand, *builder)
               ? AddRepeated(operand, y_, builder)
               : builder->Value(operand, y_.form).buffer;
  }

  // Appends y, the combination of `a`, the last operand and the condition.
  void AddCombination(Combination combination, BufferId a, BufferId condition,
                      NetworkBuilder* builder) const {
    const size_t last = SpecOf(step_.op).operands.size() - 1;
    const std::string b(OperandAt(step_, last));
    const BufferId other =
        b.empty() ? AddChannelNumbers(
                        NameOf(step_.op),
                        static_cast<float>(FloatAttribute(step_, "other")),
                        y_.blocks, &builder->schedule())
                  : Repeated(b, builder);
    builder->schedule().Add({.kind = NameOf(step_.op),
                             .reads = {a, other, condition},
                             .writes = {y_.buffer},
                             .function = [=, is_number = b.empty(),
                                          y = y_](const RunContext& context) {
                               Combined tensors = {.a = context.At(a),
                                                   .y = context.At(y.buffer),
                                                   .dy = context.At(condition)};
                               if (is_number) {
                                 tensors.numbers = context.Read<float>(other);
                               } else {
                                 tensors.b = context.At(other);
                               }
                               Combine(y.blocks, combination, tensors,
                                       context.parts());
                             }});
  }

  const ProgramStep& step_;
  NetworkTensor y_;
};

// eq, lt, le, gt, ge: no gradient passes.
class Comparison final : public Mask {
 public:
  using Mask::Mask;

  void Forward(NetworkBuilder* builder) override {
    y_ = builder->AddValue(step_.result);
    AddCombination(CombinationOf(step_.op),
                   Repeated(step_.operands[0], builder), kNoBuffer, builder);
    if (!builder->may_repeat()) return;
    // A comparison hides NaN, which a fused step may have written by mistake.
    for (const std::string& operand : step_.operands) {
      if (operand.empty()) continue;
      builder->RepeatIf(AddFiniteCheck(y_.blocks.dtype,
                                       builder->Value(operand, y_.form).buffer,
                                       &builder->schedule()));
    }
  }

  void Backward(NetworkBuilder* /*builder*/) override {}
};

// where(condition, a, b).
class Where final : public Mask {
 public:
  using Mask::Mask;

  void Forward(NetworkBuilder* builder) override {
    y_ = builder->AddValue(step_.result);
    condition_ = Repeated(step_.operands[0], builder);
    AddCombination(Combination::kWhere, Repeated(step_.operands[1], builder),
                   condition_, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    AddChosen(Combination::kIfNotZero, dy, step_.operands[1], builder);
    const std::string b(OperandAt(step_, 2));
    if (!b.empty()) AddChosen(Combination::kIfZero, dy, b, builder);
  }

 private:
  // Appends the operand's gradient: dy where the condition chooses the operand,
  // else 0.
  void AddChosen(Combination chosen, BufferId dy, const std::string& operand,
                 NetworkBuilder* builder) const {
    const bool is_repeated = IsRepeated(operand, *builder);
    NetworkTensor gradient = y_;
    gradient.buffer = is_repeated
                          ? builder->schedule().AddBuffer(y_.blocks.bytes())
                          : builder->NewGradient(operand, y_.form).buffer;
    builder->schedule().Add(
        {.kind = NameOf(step_.op),
         .reads = {dy, condition_},
         .writes = {gradient.buffer},
         .function = [=, condition = condition_](const RunContext& context) {
           Combine(gradient.blocks, chosen,
                   {.a = context.At(dy),
                    .b = context.At(condition),
                    .y = context.At(gradient.buffer)},
                   context.parts());
         }});
    if (is_repeated) AddSumsOfRepeated(gradient, operand, builder);
  }

  BufferId condition_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkMasks() {
  std::vector<NetworkOperator> rows = {{Operator::kWhere, &MakeOfStep<Where>}};
  for (const ComparisonRow& row : kComparisons) {
    rows.push_back({row.op, &MakeOfStep<Comparison>});
  }
  return rows;
}

}  // namespace convgrad::onednn
