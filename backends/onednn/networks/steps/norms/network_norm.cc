// Implements batch_norm, fused with the add and the activation after it: two
// passes over memory forward (statistics, then everything else), and two
// backward.
#include <cstring>
#include <string>
#include <tuple>

#include "backends/kernels/operators/batch_norm.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"
#include "backends/onednn/networks/steps/norms/network_small_norm.h"
#include "backends/onednn/networks/steps/norms/network_statistics.h"

namespace convgrad::onednn {
namespace {

// The buffers of one batch_norm.
struct NormBuffers {
  BufferId x, y;
  BufferId addend = kNoBuffer;
  BufferId gamma, beta;
  NormStatistics statistics;
  Activation activation = Activation::kNone;
};

// The properties that all runs share.
struct NormShape {
  ChannelBlocks blocks;
  double epsilon;
  bool training;

  BatchNorm At(const RunContext& context, const NormBuffers& buffers,
               BufferId scratch) const {
    return {.blocks = blocks,
            .gamma = context.Read<float>(buffers.gamma),
            .beta = context.Read<float>(buffers.beta),
            .epsilon = epsilon,
            .mean = context.Read<double>(buffers.statistics.mean),
            .variance = context.Read<double>(buffers.statistics.variance),
            .training = training,
            .scratch = context.Write<double>(scratch)};
  }
};

class Norm final : public NetworkGroup {
 public:
  Norm(const convgrad::Program& program, const GroupSteps& steps)
      : step_(program.steps[steps.first]),
        result_(program.steps[steps.last()].result) {
    if (steps.activation != GroupSteps::kNone) {
      const bool caps = program.steps[steps.activation].op == Operator::kRelu6;
      buffers_.activation = caps ? Activation::kRelu6 : Activation::kRelu;
    }
    if (steps.add == GroupSteps::kNone) return;
    const ProgramStep& add = program.steps[steps.add];
    addend_ = add.operands[add.operands[0] == step_.result ? 1 : 0];
  }

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0]);
    shape_ = {x.blocks, FloatAttribute(step_, "eps"),
              BoolAttribute(step_, "training")};
    buffers_.x = x.buffer;
    buffers_.gamma = builder->Parameter(OperandAt(step_, 1));
    buffers_.beta = builder->Parameter(OperandAt(step_, 2));
    if (!addend_.empty()) buffers_.addend = builder->Value(addend_).buffer;
    buffers_.y = builder->AddValue(result_).buffer;
    buffers_.statistics = AddStatistics(step_, x, builder);
    AddNormalize(builder);
  }

  void Backward(NetworkBuilder* builder) override {
    OutputGradient gradient;
    if (MasksByResult()) {
      std::tie(gradient.dy, gradient.more) = builder->GradientPairOf(result_);
    } else {
      gradient.dy = builder->GradientOf(result_).buffer;
    }
    if (MasksByResult()) {
      gradient.masked = builder->NewGradient(addend_).buffer;
    } else if (!addend_.empty()) {
      builder->AddGradient(addend_, gradient.dy);
    }
    const int64_t channels = shape_.blocks.padded_channels();
    const Sums sums = {builder->AddArray<double>(channels),
                       builder->AddArray<double>(channels)};
    AddSums(gradient, sums, builder);
    AddParameterGradients(sums, builder);
    AddInputGradient(gradient, sums, builder);
  }

 private:
  struct Sums {
    BufferId dy_xhat, dy;
  };
  // The gradient of the result: one buffer, or two to add up; and the
  // destination of the gradient after the ReLU's mask, if it must be written.
  struct OutputGradient {
    BufferId dy = kNoBuffer, more = kNoBuffer, masked = kNoBuffer;
  };

  // Returns whether the ReLU's mask comes from the result: with an addend, x
  // doesn't determine it.
  bool MasksByResult() const {
    return !addend_.empty() && buffers_.activation != Activation::kNone;
  }
  Activation ActivationOfX() const {
    return addend_.empty() ? buffers_.activation : Activation::kNone;
  }

  BufferId AddScratch(NetworkBuilder* builder) const {
    return builder->AddArray<double>(BatchNormScratch(shape_.blocks));
  }

  // Returns the buffers that every kernel call reads.
  std::vector<Location> Reads(std::initializer_list<Location> more) const {
    std::vector<Location> reads = {buffers_.statistics.mean,
                                   buffers_.statistics.variance, buffers_.gamma,
                                   buffers_.beta};
    reads.insert(reads.end(), more);
    return reads;
  }

  void AddNormalize(NetworkBuilder* builder) const {
    const BufferId scratch = AddScratch(builder);
    builder->Add(
        "batch_norm forward", Reads({buffers_.x, buffers_.addend}),
        {buffers_.y, scratch},
        [=, shape = shape_, buffers = buffers_](const RunContext& context) {
          RunForward(shape.At(context, buffers, scratch),
                     {context.At(buffers.x), context.At(buffers.addend),
                      buffers.activation, context.At(buffers.y)},
                     context.parts());
        });
  }

  void AddSums(const OutputGradient& gradient, const Sums& sums,
               NetworkBuilder* builder) const {
    const BufferId scratch = AddScratch(builder);
    const BufferId y = MasksByResult() ? buffers_.y : kNoBuffer;
    builder->Add("batch_norm backward sums",
                 Reads({gradient.dy, gradient.more, buffers_.x, y}),
                 {sums.dy_xhat, sums.dy, scratch, gradient.masked},
                 [=, shape = shape_, buffers = buffers_,
                  activation = ActivationOfX()](const RunContext& context) {
                   RunGradientSums(shape.At(context, buffers, scratch),
                                   {.dy = context.At(gradient.dy),
                                    .x = context.At(buffers.x),
                                    .activation = activation,
                                    .y = context.At(y),
                                    .more_dy = context.At(gradient.more),
                                    .masked_dy = context.At(gradient.masked)},
                                   context.parts(),
                                   {context.Write<double>(sums.dy_xhat),
                                    context.Write<double>(sums.dy)});
                 });
  }

  void AddParameterGradients(const Sums& sums, NetworkBuilder* builder) const {
    const auto add = [&](size_t operand, BufferId sum) {
      const std::string& name = OperandAt(step_, operand);
      if (name.empty()) return;
      const BufferId gradient = builder->NewParameterGradient(name);
      builder->Add(
          "batch_norm backward sums", {sum}, {gradient},
          [=, channels = shape_.blocks.channels](const RunContext& context) {
            for (int64_t c = 0; c < channels; ++c) {
              context.Write<float>(gradient)[c] =
                  static_cast<float>(context.Read<double>(sum)[c]);
            }
          });
    };
    add(1, sums.dy_xhat);
    add(2, sums.dy);
  }

  void AddInputGradient(const OutputGradient& gradient, const Sums& sums,
                        NetworkBuilder* builder) const {
    const BufferId dy =
        gradient.masked != kNoBuffer ? gradient.masked : gradient.dy;
    const BufferId dx = builder->NewGradient(step_.operands[0]).buffer;
    const bool is_small = shape_.training && HasFewElements(shape_.blocks, 1);
    const bool is_masked = ActivationOfX() != Activation::kNone;
    const BufferId y = is_small && is_masked ? buffers_.y : kNoBuffer;
    const BufferId scratch = is_small ? kNoBuffer : AddScratch(builder);
    builder->Add("batch_norm backward",
                 is_small ? Reads({dy, buffers_.x, y})
                          : Reads({dy, buffers_.x, sums.dy_xhat, sums.dy}),
                 {scratch, dx},
                 [=, shape = shape_, buffers = buffers_,
                  activation = ActivationOfX()](const RunContext& context) {
                   const BatchNorm norm = shape.At(context, buffers, scratch);
                   const BatchNormBackward tensors = {
                       .dy = context.At(dy),
                       .x = context.At(buffers.x),
                       .activation = activation,
                       .dx = context.At(dx)};
                   if (is_small) {
                     std::memset(tensors.dx, 0, shape.blocks.bytes());
                     for (int64_t c = 0; c < shape.blocks.channels; ++c) {
                       WriteSmallGradient(norm, c, 1, tensors, context.At(y));
                     }
                     return;
                   }
                   RunGradientInput(norm, tensors,
                                    {context.Write<double>(sums.dy_xhat),
                                     context.Write<double>(sums.dy)},
                                    context.parts());
                 });
  }

  const ProgramStep& step_;
  const std::string result_;
  std::string addend_;  // "": none
  NormShape shape_;
  NormBuffers buffers_;
};

}  // namespace

std::vector<NetworkOperator> NetworkNorms() {
  return {{Operator::kBatchNorm, &MakeOfStep<Norm>}};
}

}  // namespace convgrad::onednn
