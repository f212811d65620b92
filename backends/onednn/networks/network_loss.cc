// cross_entropy. The forward computes the gradient, too, while the softmax is
// at hand; the backward multiplies it by the loss's own gradient.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/onednn/networks/network_elements.h"
#include "backends/onednn/networks/network_groups.h"

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
  // Offsets in the logits: of a position's first channel, and from there to
  // channel c.
  int64_t Offset(int64_t position) const {
    const int64_t n = position / logits.spatial;
    const int64_t s = position % logits.spatial;
    return (n * logits.block_count() * logits.spatial + s) * logits.block;
  }
  int64_t ChannelOffset(int64_t c) const {
    return c / logits.block * logits.spatial * logits.block + c % logits.block;
  }
};

struct CrossEntropyBuffers {
  BufferId logits, target, weight;
  BufferId chunks;  // two doubles each: loss, weight
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
        gradient_(context.Write<float>(buffers.gradient)) {
    for (int64_t c = 0; c < shape.logits.channels; ++c) {
      weight_sum_ += WeightOf(c);
    }
    for (int64_t c = 0; c < shape.logits.padded_channels(); ++c) {
      channel_offsets_.push_back(shape.ChannelOffset(c));
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
  // `scale`. `row` is for its own use, with an element for each channel.
  double Compute(int64_t position, double scale, double* row) const {
    const int64_t channels = shape_.logits.channels;
    const int64_t offset = shape_.Offset(position);
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t c = 0; c < channels; ++c) {
      const double x = Logit(offset, c);
      largest = x > largest || std::isnan(x) ? x : largest;
    }
    double sum = 0;
    for (int64_t c = 0; c < channels; ++c) {
      row[c] = std::exp(Logit(offset, c) - largest);
      sum += row[c];
    }
    const double loss =
        IsIgnored(position) ? 0 : Loss(position, largest + std::log(sum));
    if (gradient_ != nullptr) WriteGradient(position, scale, sum, row);
    return loss;
  }

 private:
  double Logit(int64_t offset, int64_t c) const {
    return LoadElement(shape_.logits.dtype, logits_,
                       offset + channel_offsets_[c]);
  }
  double SmoothShare() const {
    return shape_.label_smoothing / static_cast<double>(shape_.logits.channels);
  }

  double Loss(int64_t position, double log_sum) const {
    const int64_t target = target_[position];
    const int64_t offset = shape_.Offset(position);
    double loss = (1 - shape_.label_smoothing) * WeightOf(target) *
                  (log_sum - Logit(offset, target));
    if (shape_.label_smoothing == 0) return loss;
    for (int64_t c = 0; c < shape_.logits.channels; ++c) {
      loss += SmoothShare() * WeightOf(c) * (log_sum - Logit(offset, c));
    }
    return loss;
  }

  // Of the softmax exponentials / sum.
  void WriteGradient(int64_t position, double scale, double sum,
                     const double* exponentials) const {
    float* gradients = gradient_ + shape_.Offset(position);
    const bool is_ignored = IsIgnored(position);
    const double share = 1 - shape_.label_smoothing;
    const double of_target = share * TargetWeight(position);
    const double total = of_target + SmoothShare() * weight_sum_;
    for (int64_t c = 0; c < shape_.logits.padded_channels(); ++c) {
      double gradient = 0;
      if (!is_ignored && c < shape_.logits.channels) {
        gradient = exponentials[c] / sum * total - SmoothShare() * WeightOf(c);
        if (c == target_[position]) gradient -= of_target;
        gradient *= scale;
      }
      gradients[channel_offsets_[c]] = static_cast<float>(gradient);
    }
  }

  const CrossEntropyShape& shape_;
  const std::byte* const logits_;
  const int64_t* const target_;
  const float* const weight_;
  float* const gradient_;
  double weight_sum_ = 0;
  std::vector<int64_t> channel_offsets_;
};

void RunCrossEntropy(const CrossEntropyShape& shape,
                     const CrossEntropyBuffers& buffers,
                     const RunContext& context) {
  const CrossEntropy loss(shape, buffers, context);
  auto* chunks = context.Write<double>(buffers.chunks);
  const auto sum_chunks = [&](auto of_position) {
    context.ForParts(shape.chunks(), [&](int64_t chunk) {
      const int64_t end = std::min(shape.positions(), (chunk + 1) * kChunk);
      std::vector<double> row(shape.logits.channels);
      chunks[chunk] = 0;
      for (int64_t i = chunk * kChunk; i < end; ++i) {
        chunks[chunk] += of_position(i, row.data());
      }
    });
    double sum = 0;
    for (int64_t i = 0; i < shape.chunks(); ++i) sum += chunks[i];
    return sum;
  };
  double divisor = 1;
  if (shape.is_mean) {
    divisor = shape.denominator != 0
                  ? shape.denominator
                  : sum_chunks([&](int64_t i, double* /*row*/) {
                      return loss.TargetWeight(i);
                    });
  }
  const double total = sum_chunks([&](int64_t i, double* row) {
    return loss.Compute(i, 1 / divisor, row);
  });
  *context.Write<float>(buffers.loss) = static_cast<float>(total / divisor);
}

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
    CrossEntropyBuffers buffers = {
        .logits = logits.buffer,
        .target = builder->InputBuffer(step_.operands[1]),
        .weight = builder->Parameter(OperandAt(step_, 2)),
        .chunks = schedule.AddBuffer(shape_.chunks() * int64_t{sizeof(double)}),
        .loss = builder->AddValue(step_.result).buffer};
    NetworkStep step = {.kind = "loss",
                        .reads = {buffers.logits, buffers.target},
                        .writes = {buffers.chunks, buffers.loss}};
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
           const int64_t channels = shape.logits.padded_channels();
           context.ForParts(shape.chunks(), [&](int64_t chunk) {
             const int64_t end =
                 std::min(shape.positions(), (chunk + 1) * kChunk) * channels;
             for (int64_t i = chunk * kChunk * channels; i < end; ++i) {
               StoreElement(shape.logits.dtype, factor * from[i],
                            context.At(dx), i);
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

std::unique_ptr<NetworkGroup> MakeCrossEntropy(const ProgramStep& step) {
  return std::make_unique<CrossEntropyGroup>(step);
}

}  // namespace convgrad::onednn
