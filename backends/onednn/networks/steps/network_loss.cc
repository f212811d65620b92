// cross_entropy. The forward computes the gradient, too, while the softmax is
// at hand; the backward multiplies it by the loss's own gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "backends/core/status.h"
#include "backends/kernels/copies/element_convert.h"
#include "backends/kernels/operators/softmax.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_elements.h"
#include "backends/onednn/networks/steps/network_steps.h"

namespace convgrad::onednn {
namespace {

// Positions whose losses are added up by one part.
constexpr int64_t kChunk = 256;

struct CrossEntropyShape {
  ChannelBlocks logits;
  double label_smoothing;
  int64_t ignore_index;
  bool is_mean;
  // What the mean divides by; 0: the weights of the targets.
  double denominator;

  int64_t positions() const { return logits.batch * logits.spatial; }
  int64_t chunks() const { return (positions() + kChunk - 1) / kChunk; }
  // Where a position's first channel is, and from there that of block `b`.
  int64_t Offset(int64_t position) const {
    const int64_t n = position / logits.spatial;
    const int64_t s = position % logits.spatial;
    return (n * logits.block_count() * logits.spatial + s) * logits.block;
  }
  int64_t BlockOffset(int64_t b) const {
    return b * logits.spatial * logits.block;
  }
  // Elements of a row of channels for Exponentiate.
  int64_t row_size() const {
    constexpr int64_t kLanes = kSoftmaxLanes;
    return (logits.padded_channels() + kLanes - 1) / kLanes * kLanes;
  }
};

struct CrossEntropyBuffers {
  BufferId logits, target, weight;
  BufferId chunks;  // a double each
  BufferId rows;    // by chunk, row_size() doubles
  BufferId smooth;  // a double for each channel
  BufferId loss;
  BufferId gradient = kNoBuffer;  // like the logits, in f32
};

// One run.
class CrossEntropy {
 public:
  CrossEntropy(const CrossEntropyShape& shape,
               const CrossEntropyBuffers& buffers, const RunContext& context)
      : shape_(shape),
        logits_(context.At(buffers.logits)),
        target_(context.Read<int64_t>(buffers.target)),
        weight_(context.Read<float>(buffers.weight)),
        gradient_(context.Write<float>(buffers.gradient)),
        smooth_weights_(context.Write<double>(buffers.smooth)) {
    const double share =
        shape.label_smoothing / static_cast<double>(shape.logits.channels);
    for (int64_t c = 0; c < shape.logits.channels; ++c) {
      smooth_weights_[c] = share * WeightOf(c);
      smooth_weight_sum_ += smooth_weights_[c];
    }
  }

  double WeightOf(int64_t c) const { return weight_ ? weight_[c] : 1; }
  bool IsIgnored(int64_t position) const {
    return target_[position] == shape_.ignore_index;
  }
  double TargetWeight(int64_t position) const {
    return IsIgnored(position) ? 0 : WeightOf(target_[position]);
  }

  // Returns the unscaled loss of a position, and writes its gradient times
  // `scale`. `row` is for its own use.
  double Compute(int64_t position, double scale, absl::Span<double> row) const {
    LoadLogits(position, row);
    const bool is_ignored = IsIgnored(position);
    const double logit = is_ignored ? 0 : row[target_[position]];
    double smooth_logits = 0;
    if (shape_.label_smoothing != 0) {
      for (int64_t c = 0; c < shape_.logits.channels; ++c) {
        smooth_logits += smooth_weights_[c] * row[c];
      }
    }
    const SoftmaxSums sums = Exponentiate(row);
    if (gradient_ != nullptr) WriteGradient(position, scale, sums.sum, row);
    if (is_ignored) return 0;
    const double log_sum = sums.largest + std::log(sums.sum);
    return ShareOfTarget(position) * (log_sum - logit) +
           smooth_weight_sum_ * log_sum - smooth_logits;
  }

 private:
  double ShareOfTarget(int64_t position) const {
    return (1 - shape_.label_smoothing) * TargetWeight(position);
  }

  void LoadLogits(int64_t position, absl::Span<double> row) const {
    const ChannelBlocks& logits = shape_.logits;
    const int64_t offset = shape_.Offset(position);
    for (int64_t b = 0; b < logits.block_count(); ++b) {
      const int64_t first = b * logits.block;
      const int64_t from = offset + shape_.BlockOffset(b);
      const int64_t count = std::min(logits.block, logits.channels - first);
      for (int64_t i = 0; i < count; ++i) {
        row[first + i] = LoadElement(logits.dtype, logits_, from + i);
      }
    }
    std::fill(row.begin() + logits.channels, row.end(),
              -std::numeric_limits<double>::infinity());
  }

  // Of the softmax exponentials / sum.
  void WriteGradient(int64_t position, double scale, double sum,
                     absl::Span<const double> exponentials) const {
    const ChannelBlocks& logits = shape_.logits;
    float* const gradients = gradient_ + shape_.Offset(position);
    const bool is_ignored = IsIgnored(position);
    const double of_target = ShareOfTarget(position);
    const double factor = (of_target + smooth_weight_sum_) / sum;
    const auto gradient = [&](int64_t c) {
      return exponentials[c] * factor - smooth_weights_[c];
    };
    for (int64_t b = 0; b < logits.block_count(); ++b) {
      float* const block = gradients + shape_.BlockOffset(b);
      const int64_t first = b * logits.block;
      const int64_t count =
          is_ignored ? 0 : std::min(logits.block, logits.channels - first);
      for (int64_t i = 0; i < count; ++i) {
        block[i] = static_cast<float>(gradient(first + i) * scale);
      }
      std::fill(block + count, block + logits.block, 0.0F);
    }
    if (is_ignored) return;
    const int64_t target = target_[position];
    gradients[shape_.BlockOffset(target / logits.block) +
              target % logits.block] =
        static_cast<float>((gradient(target) - of_target) * scale);
  }

  const CrossEntropyShape& shape_;
  const std::byte* const logits_;
  const int64_t* const target_;
  const float* const weight_;
  float* const gradient_;
  // Of each channel, what label smoothing gives it; zeros without.
  double* const smooth_weights_;
  double smooth_weight_sum_ = 0;
};

void RunCrossEntropy(const CrossEntropyShape& shape,
                     const CrossEntropyBuffers& buffers,
                     const RunContext& context) {
  const CrossEntropy loss(shape, buffers, context);
  auto* chunks = context.Write<double>(buffers.chunks);
  auto* rows = context.Write<double>(buffers.rows);
  const auto sum_chunks = [&](auto of_position) {
    context.ForParts(shape.chunks(), [&](int64_t chunk) {
      const int64_t end = std::min(shape.positions(), (chunk + 1) * kChunk);
      const absl::Span<double> row(rows + chunk * shape.row_size(),
                                   shape.row_size());
      chunks[chunk] = 0;
      for (int64_t i = chunk * kChunk; i < end; ++i) {
        chunks[chunk] += of_position(i, row);
      }
    });
    double sum = 0;
    for (int64_t i = 0; i < shape.chunks(); ++i) sum += chunks[i];
    return sum;
  };
  double divisor = shape.is_mean ? shape.denominator : 1;
  if (divisor == 0) {
    divisor = sum_chunks([&](int64_t i, absl::Span<double> /*row*/) {
      return loss.TargetWeight(i);
    });
  }
  const double total = sum_chunks([&](int64_t i, absl::Span<double> row) {
    return loss.Compute(i, 1 / divisor, row);
  });
  *context.Write<float>(buffers.loss) = static_cast<float>(total / divisor);
}

// Checks what the run reads again: RunBuffers has it that indices don't change.
// Errors: kInvalidArgument naming the first target that is no class.
absl::Status CheckTargets(const ProgramStep& step,
                          const CrossEntropyShape& shape,
                          const int64_t* targets) {
  for (int64_t i = 0; i < shape.positions(); ++i) {
    const bool is_class = targets[i] >= 0 && targets[i] < shape.logits.channels;
    if (is_class || targets[i] == shape.ignore_index) continue;
    return InvalidField(
        Reason::kOutOfRange, absl::StrCat(step.operands[1], "[", i, "]"),
        absl::StrCat(targets[i]),
        absl::StrCat("a class from 0 to ", shape.logits.channels - 1, ", or ",
                     shape.ignore_index));
  }
  return absl::OkStatus();
}

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
    // A copy, for a plan may outlive its program.
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
