// Implements cross_entropy. The backward multiplies the gradient that the
// forward has computed by the loss's own gradient.
#include <algorithm>

#include "backends/kernels/copies/element_convert.h"
#include "backends/onednn/networks/steps/losses/network_cross_entropy.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kChunk = kCrossEntropyChunk;

class CrossEntropyGroup final : public NetworkGroup {
 public:
  explicit CrossEntropyGroup(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor logits = builder->Value(step_.operands[0]);
    shape_ = {logits.blocks,
              StepDims(step_, builder->shapes()).IsIndex(1),
              FloatAttribute(step_, "label_smoothing"),
              IntAttribute(step_, "ignore_index"),
              WordAttribute(step_, "reduction") == "mean",
              FloatAttribute(step_, "denominator")};
    const auto doubles = [&](int64_t count) {
      return builder->AddArray<double>(count);
    };
    const std::string& target = step_.operands[1];
    buffers_ = {
        .logits = logits.buffer,
        .target = shape_.has_indices ? builder->InputBuffer(target)
                                     : builder->Value(target).buffer,
        .weight = builder->Parameter(OperandAt(step_, 2)),
        .chunks = doubles(shape_.chunks()),
        .rows = doubles(shape_.chunks() * shape_.rows_size()),
        .doubles = doubles(shape_.has_indices ? logits.blocks.padded_channels()
                                              : shape_.positions()),
        .loss = builder->AddValue(step_.result).buffer};
    if (builder->has_backward()) {
      buffers_.gradient = builder->AddArray<float>(logits.blocks.size());
    }
    AddForward(builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    const BufferId dx = builder->NewGradient(step_.operands[0]).buffer;
    builder->Add(
        "loss", {dy, buffers_.gradient}, {dx},
        [=, gradient = buffers_.gradient,
         shape = shape_](const RunContext& context) {
          const float factor = *context.Read<float>(dy);
          const auto* from = context.Read<float>(gradient);
          const ChannelBlocks& logits = shape.logits;
          context.ForParts(shape.chunks(), [&](int64_t chunk) {
            const int64_t channels = logits.padded_channels();
            const int64_t begin = chunk * kChunk * channels;
            const int64_t end =
                std::min(shape.positions(), (chunk + 1) * kChunk) * channels;
            float scaled[kChunk];
            for (int64_t at = begin; at < end; at += kChunk) {
              const int64_t count = std::min(kChunk, end - at);
              std::transform(from + at, from + at + count, scaled,
                             [&](float value) { return factor * value; });
              ConvertRun(DataType::kF32, scaled, logits.dtype,
                         context.At(dx) + at * ByteSizeOf(logits.dtype), count);
            }
          });
        });
    if (!shape_.has_indices) AddTargetGradient(dy, builder);
  }

 private:
  void AddForward(Schedule* schedule) const {
    Step step = {.kind = "loss",
                 .reads = {buffers_.logits, buffers_.target, buffers_.weight},
                 .writes = {buffers_.chunks, buffers_.rows, buffers_.doubles,
                            buffers_.loss, buffers_.gradient}};
    // The functions capture copies, because a plan may outlive its program.
    const auto run =
        shape_.has_indices ? &RunCrossEntropy : &RunSoftCrossEntropy;
    step.function = [=, shape = shape_,
                     buffers = buffers_](const RunContext& context) {
      run(shape, buffers, context);
    };
    if (shape_.has_indices) {
      step.check = [shape = shape_, target = buffers_.target,
                    program_step = step_](const RunContext& context) {
        return CheckTargets(program_step, shape, context.Read<int64_t>(target));
      };
    }
    schedule->Add(std::move(step));
  }

  void AddTargetGradient(BufferId dy, NetworkBuilder* builder) const {
    const BufferId gradient = builder->NewGradient(step_.operands[1]).buffer;
    builder->Add(
        "loss", {dy, buffers_.logits, buffers_.doubles, buffers_.weight},
        {gradient},
        [=, shape = shape_, buffers = buffers_](const RunContext& context) {
          RunTargetGradient(shape, buffers, dy, gradient, context);
        });
  }

  const ProgramStep& step_;
  CrossEntropyShape shape_;
  CrossEntropyBuffers buffers_;
};

}  // namespace

std::vector<NetworkOperator> NetworkCrossEntropy() {
  return {{Operator::kCrossEntropy, &MakeOfStep<CrossEntropyGroup>}};
}

}  // namespace convgrad::onednn
