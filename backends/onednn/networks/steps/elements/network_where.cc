// Implements where, the choice by a condition. Operands are repeated to the
// dims of the result; a constant may replace the last one, b.
#include "backends/onednn/networks/steps/elements/network_repeated.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

class Where final : public NetworkGroup {
 public:
  explicit Where(const ProgramStep& step)
      : step_(step), b_(OperandAt(step, 2)) {}

  void Forward(NetworkBuilder* builder) override {
    y_ = builder->AddValue(step_.result);
    condition_ = Repeated(step_.operands[0], builder);
    const BufferId a = Repeated(step_.operands[1], builder);
    const bool is_number = b_.empty();
    const BufferId b =
        is_number ? AddChannelNumbers(
                        NameOf(step_.op),
                        static_cast<float>(FloatAttribute(step_, "other")),
                        y_.blocks, builder)
                  : Repeated(b_, builder);
    builder->Add(
        NameOf(step_.op), {a, b, condition_}, {y_.buffer},
        [=, condition = condition_, y = y_](const RunContext& context) {
          Combined tensors = {.a = context.At(a),
                              .y = context.At(y.buffer),
                              .dy = context.At(condition)};
          if (is_number) {
            tensors.numbers = context.Read<float>(b);
          } else {
            tensors.b = context.At(b);
          }
          Combine(y.blocks, Combination::kWhere, tensors, context.parts());
        });
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    AddChosen(Combination::kIfNotZero, dy, step_.operands[1], builder);
    if (!b_.empty()) AddChosen(Combination::kIfZero, dy, b_, builder);
  }

 private:
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

  // Appends the operand's gradient: dy where the condition chooses the operand,
  // else 0.
  void AddChosen(Combination chosen, BufferId dy, const std::string& operand,
                 NetworkBuilder* builder) const {
    const bool is_repeated = IsRepeated(operand, *builder);
    NetworkTensor gradient = y_;
    gradient.buffer = is_repeated
                          ? builder->AddBuffer(y_.blocks.bytes())
                          : builder->NewGradient(operand, y_.form).buffer;
    builder->Add(NameOf(step_.op), {dy, condition_}, {gradient.buffer},
                 [=, condition = condition_](const RunContext& context) {
                   Combine(gradient.blocks, chosen,
                           {.a = context.At(dy),
                            .b = context.At(condition),
                            .y = context.At(gradient.buffer)},
                           context.parts());
                 });
    if (is_repeated) AddSumsOfRepeated(gradient, operand, builder);
  }

  const ProgramStep& step_;
  const std::string b_;  // "": a constant
  NetworkTensor y_;
  BufferId condition_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkWhere() {
  return {{Operator::kWhere, &MakeOfStep<Where>}};
}

}  // namespace convgrad::onednn
