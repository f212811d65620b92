#include "backends/onednn/networks/steps/elements/network_activation.h"

#include <vector>

#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

class ActivationGroup final : public NetworkGroup {
 public:
  ActivationGroup(const ProgramStep& step, Pointwise op)
      : step_(step), op_(op) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(step_.result);
    const NetworkTensor x = builder->Value(step_.operands[0], y.form);
    saved_ = SavesResult(op_.activation) ? y.buffer : x.buffer;
    AddActivation(x.blocks, op_, x.buffer, y.buffer, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    const NetworkTensor like = builder->Like(step_.result);
    if (op_.activation == Activation::kShift) {
      builder->AddGradient(step_.operands[0], dy, like.form);
      return;
    }
    AddActivateGradient(
        like.blocks, op_, dy, IsLinear(op_.activation) ? dy : saved_,
        builder->NewGradient(step_.operands[0], like.form).buffer, builder);
  }

 private:
  const ProgramStep& step_;
  Pointwise op_;
  BufferId saved_ = kNoBuffer;
};

template <Activation kActivation>
std::unique_ptr<NetworkGroup> MakeFunction(const convgrad::Program& program,
                                           const ProgramShapes& /*shapes*/,
                                           const GroupSteps& steps) {
  const ProgramStep& step = program.steps[steps.first];
  const StepNumbers numbers = NumbersOf(step);
  const bool is_tanh = WordAttribute(step, "approximate") == "tanh";
  const double alpha = kActivation == Activation::kPow
                           ? numbers.first
                           : static_cast<float>(numbers.first);
  return MakeActivation(step, {is_tanh ? Activation::kGeluTanh : kActivation,
                               alpha, static_cast<float>(numbers.second)});
}

}  // namespace

void AddActivation(const ChannelBlocks& blocks, Pointwise op, BufferId x,
                   BufferId y, Schedule* schedule) {
  schedule->Add("activation forward", {x}, {y}, [=](const RunContext& context) {
    Activate(blocks, op, context.At(x), context.At(y), context.parts());
  });
}

void AddActivateGradient(const ChannelBlocks& blocks, Pointwise op, BufferId dy,
                         BufferId saved, BufferId dx, Schedule* schedule) {
  schedule->Add(
      "activation backward", {dy, saved}, {dx}, [=](const RunContext& context) {
        RunActivateGradient(blocks, op,
                            {context.At(dy), context.At(saved), context.At(dx)},
                            context.parts());
      });
}

std::unique_ptr<NetworkGroup> MakeActivation(const ProgramStep& step,
                                             Pointwise op) {
  return std::make_unique<ActivationGroup>(step, op);
}

std::vector<NetworkOperator> NetworkActivations() {
  return {{Operator::kRelu, &MakeFunction<Activation::kRelu>},
          {Operator::kRelu6, &MakeFunction<Activation::kRelu6>},
          {Operator::kLeakyRelu, &MakeFunction<Activation::kLeakyRelu>},
          {Operator::kElu, &MakeFunction<Activation::kElu>},
          {Operator::kSigmoid, &MakeFunction<Activation::kSigmoid>},
          {Operator::kSilu, &MakeFunction<Activation::kSilu>},
          {Operator::kTanh, &MakeFunction<Activation::kTanh>},
          {Operator::kGelu, &MakeFunction<Activation::kGelu>},
          {Operator::kMish, &MakeFunction<Activation::kMish>},
          {Operator::kSoftplus, &MakeFunction<Activation::kSoftplus>},
          {Operator::kHardsigmoid, &MakeFunction<Activation::kHardsigmoid>},
          {Operator::kHardswish, &MakeFunction<Activation::kHardswish>},
          {Operator::kHardtanh, &MakeFunction<Activation::kHardtanh>},
          {Operator::kClamp, &MakeFunction<Activation::kClamp>},
          {Operator::kNeg, &MakeFunction<Activation::kNeg>},
          {Operator::kAbs, &MakeFunction<Activation::kAbs>},
          {Operator::kExp, &MakeFunction<Activation::kExp>},
          {Operator::kSqrt, &MakeFunction<Activation::kSqrt>},
          {Operator::kRsqrt, &MakeFunction<Activation::kRsqrt>},
          {Operator::kReciprocal, &MakeFunction<Activation::kReciprocal>},
          {Operator::kLog, &MakeFunction<Activation::kLog>},
          {Operator::kPow, &MakeFunction<Activation::kPow>},
          {Operator::kSin, &MakeFunction<Activation::kSin>},
          {Operator::kCos, &MakeFunction<Activation::kCos>}};
}

}  // namespace convgrad::onednn
