#include "backends/onednn/networks/steps/losses/network_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "backends/core/status.h"
#include "backends/kernels/operators/elements.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kChunk = kCrossEntropyChunk;

// Computes one run.
class CrossEntropy {
 public:
  CrossEntropy(const CrossEntropyShape& shape,
               const CrossEntropyBuffers& buffers, const RunContext& context)
      : shape_(shape),
        logits_(context.At(buffers.logits)),
        target_(context.Read<int64_t>(buffers.target)),
        weight_(context.Read<float>(buffers.weight)),
        gradient_(context.Write<float>(buffers.gradient)),
        smooth_weights_(context.Write<double>(buffers.doubles)) {
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
  // `scale`. Overwrites `row`.
  double Compute(int64_t position, double scale, absl::Span<double> row) const {
    LoadChannels(shape_, logits_, position, row);
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

  // Writes the gradient from the softmax, i.e. the exponentials / `sum`.
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
  // The share of each channel by label smoothing; zeros without smoothing.
  double* const smooth_weights_;
  double smooth_weight_sum_ = 0;
};

}  // namespace

void LoadChannels(const CrossEntropyShape& shape, const std::byte* values,
                  int64_t position, absl::Span<double> row) {
  const ChannelBlocks& logits = shape.logits;
  const int64_t offset = shape.Offset(position);
  for (int64_t b = 0; b < logits.block_count(); ++b) {
    const int64_t first = b * logits.block;
    const int64_t from = offset + shape.BlockOffset(b);
    const int64_t count = std::min(logits.block, logits.channels - first);
    for (int64_t i = 0; i < count; ++i) {
      row[first + i] = LoadElement(logits.dtype, values, from + i);
    }
  }
  std::fill(row.begin() + logits.channels, row.end(),
            -std::numeric_limits<double>::infinity());
}

double SumOfPositions(
    const CrossEntropyShape& shape, const CrossEntropyBuffers& buffers,
    const RunContext& context,
    absl::FunctionRef<double(int64_t, absl::Span<double>)> of_position) {
  auto* chunks = context.Write<double>(buffers.chunks);
  auto* rows = context.Write<double>(buffers.rows);
  context.ForParts(shape.chunks(), [&](int64_t chunk) {
    const int64_t end = std::min(shape.positions(), (chunk + 1) * kChunk);
    const absl::Span<double> row(rows + chunk * shape.rows_size(),
                                 shape.rows_size());
    chunks[chunk] = 0;
    for (int64_t i = chunk * kChunk; i < end; ++i) {
      chunks[chunk] += of_position(i, row);
    }
  });
  double sum = 0;
  for (int64_t i = 0; i < shape.chunks(); ++i) sum += chunks[i];
  return sum;
}

void RunCrossEntropy(const CrossEntropyShape& shape,
                     const CrossEntropyBuffers& buffers,
                     const RunContext& context) {
  const CrossEntropy loss(shape, buffers, context);
  double divisor = shape.is_mean ? shape.denominator : 1;
  if (divisor == 0) {
    divisor = SumOfPositions(shape, buffers, context,
                             [&](int64_t i, absl::Span<double> /*row*/) {
                               return loss.TargetWeight(i);
                             });
  }
  const double total = SumOfPositions(
      shape, buffers, context, [&](int64_t i, absl::Span<double> row) {
        return loss.Compute(i, 1 / divisor, row);
      });
  *context.Write<float>(buffers.loss) = static_cast<float>(total / divisor);
}

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

}  // namespace convgrad::onednn
