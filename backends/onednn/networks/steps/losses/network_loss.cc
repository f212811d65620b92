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

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor logits = builder->Value(step_.operands[0]);
    shape_ = {logits.blocks, FloatAttribute(step_, "label_smoothing"),
              IntAttribute(step_, "ignore_index"),
              WordAttribute(step_, "reduction") == "mean",
              FloatAttribute(step_, "denominator")};
    Schedule& schedule = builder->schedule();
    const auto doubles = [&](int64_t count) {
      return schedule.AddBuffer(count * int64_t{sizeof(double)});
    };
    CrossEntropyBuffers buffers = {
        .logits = logits.buffer,
        .target = builder->InputBuffer(step_.operands[1]),
        .weight = builder->Parameter(OperandAt(step_, 2)),
        .chunks = doubles(shape_.chunks()),
        .rows = doubles(shape_.chunks() * shape_.row_size()),
        .smooth = doubles(logits.blocks.padded_channels()),
        .loss = builder->AddValue(step_.result).buffer};
    Step step = {
        .kind = "loss",
        .reads = {buffers.logits, buffers.target},
        .writes = {buffers.chunks, buffers.rows, buffers.smooth, buffers.loss}};
    if (buffers.weight != kNoBuffer) step.reads.push_back(buffers.weight);
    if (builder->has_backward()) {
      gradient_ =
          schedule.AddBuffer(logits.blocks.size() * int64_t{sizeof(float)});
      buffers.gradient = gradient_;
      step.writes.push_back(gradient_);
    }
    step.function = [=, shape = shape_](const RunContext& context) {
      RunCrossEntropy(shape, buffers, context);
    };
    // Captures copies, because a plan may outlive its program.
    step.check = [=, shape = shape_,
                  program_step = step_](const RunContext& context) {
      return CheckTargets(program_step, shape,
                          context.Read<int64_t>(buffers.target));
    };
    schedule.Add(std::move(step));
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result);
    if (dy == kNoBuffer) return absl::OkStatus();
    const BufferId dx = builder->NewGradient(step_.operands[0]);
    builder->schedule().Add(
        {.kind = "loss",
         .reads = {dy, gradient_},
         .writes = {dx},
         .function = [=, gradient = gradient_,
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
                          context.At(dx) + at * ByteSizeOf(logits.dtype),
                          count);
             }
           });
         }});
    return absl::OkStatus();
  }

 private:
  const ProgramStep& step_;
  CrossEntropyShape shape_;
  BufferId gradient_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkCrossEntropy() {
  return {{Operator::kCrossEntropy, &MakeOfStep<CrossEntropyGroup>}};
}

}  // namespace convgrad::onednn
