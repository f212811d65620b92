// Activations, and adds of equal shapes with or without a ReLU.
#include <optional>
#include <string>

#include "backends/kernels/operators/pointwise.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// Appends dx = dy * act'(saved).
void AddActivateGradient(const ChannelBlocks& blocks, Pointwise op, BufferId dy,
                         BufferId saved, BufferId dx, Schedule* schedule) {
  schedule->Add(
      {.kind = "activation backward",
       .reads = {dy, saved},
       .writes = {dx},
       .function = [=](const RunContext& context) {
         RunActivateGradient(
             blocks, op, {context.At(dy), context.At(saved), context.At(dx)},
             [&](int64_t count, auto part) { context.ForParts(count, part); });
       }});
}

class ActivationGroup final : public NetworkGroup {
 public:
  ActivationGroup(const ProgramStep& step, Activation activation)
      : step_(step),
        op_{activation,
            static_cast<float>(FloatAttribute(step, "negative_slope"))} {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(step_.result);
    const NetworkTensor x = builder->Value(step_.operands[0], y.form);
    saved_ = SavesResult(op_.activation) ? y.buffer : x.buffer;
    builder->schedule().Add(
        {.kind = "activation forward",
         .reads = {x.buffer},
         .writes = {y.buffer},
         .function = [=, op = op_](const RunContext& context) {
           Activate(x.blocks, op, context.At(x.buffer), context.At(y.buffer),
                    [&](int64_t count, auto part) {
                      context.ForParts(count, part);
                    });
         }});
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result);
    if (dy == kNoBuffer) return absl::OkStatus();
    const NetworkTensor like = builder->Like(step_.result);
    AddActivateGradient(like.blocks, op_, dy, saved_,
                        builder->NewGradient(step_.operands[0], like.form),
                        &builder->schedule());
    return absl::OkStatus();
  }

 private:
  const ProgramStep& step_;
  Pointwise op_;
  BufferId saved_ = kNoBuffer;
};

class AddGroup final : public NetworkGroup {
 public:
  AddGroup(const convgrad::Program& program, const GroupSteps& steps)
      : step_(program.steps[steps.first]),
        result_(program.steps[steps.last()].result) {
    if (steps.activation != GroupSteps::kNone)
      op_.activation = Activation::kRelu;
  }

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor y = builder->AddValue(result_);
    const NetworkTensor a = builder->Value(step_.operands[0], y.form);
    const NetworkTensor b = builder->Value(step_.operands[1], y.form);
    y_ = y;
    builder->schedule().Add(
        {.kind = "add",
         .reads = {a.buffer, b.buffer},
         .writes = {y.buffer},
         .function = [=, op = op_](const RunContext& context) {
           Add(y.blocks, op,
               {context.At(a.buffer), context.At(b.buffer),
                context.At(y.buffer)},
               [&](int64_t count, auto part) {
                 context.ForParts(count, part);
               });
         }});
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    BufferId dy = builder->GradientOf(result_);
    if (dy == kNoBuffer) return absl::OkStatus();
    if (op_.activation != Activation::kNone) {
      const ChannelBlocks& blocks = y_.blocks;
      const BufferId masked = builder->schedule().AddBuffer(blocks.bytes());
      AddActivateGradient(blocks, op_, dy, y_.buffer, masked,
                          &builder->schedule());
      dy = masked;
    }
    for (const std::string& operand : step_.operands) {
      builder->AddGradient(operand, dy, y_.form);
    }
    return absl::OkStatus();
  }

 private:
  const ProgramStep& step_;
  const std::string result_;
  Pointwise op_;
  NetworkTensor y_;
};

template <Activation kActivation>
std::unique_ptr<NetworkGroup> MakeActivation(const convgrad::Program& program,
                                             const ProgramShapes& /*shapes*/,
                                             const GroupSteps& steps) {
  return std::make_unique<ActivationGroup>(program.steps[steps.first],
                                           kActivation);
}

}  // namespace

std::vector<NetworkOperator> NetworkActivations() {
  return {{Operator::kRelu, &MakeActivation<Activation::kRelu>},
          {Operator::kRelu6, &MakeActivation<Activation::kRelu6>},
          {Operator::kLeakyRelu, &MakeActivation<Activation::kLeakyRelu>},
          {Operator::kSigmoid, &MakeActivation<Activation::kSigmoid>},
          {Operator::kSilu, &MakeActivation<Activation::kSilu>},
          {Operator::kTanh, &MakeActivation<Activation::kTanh>}};
}

std::unique_ptr<NetworkGroup> MakeAdd(const convgrad::Program& program,
                                      const GroupSteps& steps) {
  return std::make_unique<AddGroup>(program, steps);
}

}  // namespace convgrad::onednn
