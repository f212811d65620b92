#include "backends/onednn/networks/steps/losses/network_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "backends/core/field_errors.h"
#include "backends/kernels/operators/elements.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kChunk = kCrossEntropyChunk;

// Reads the channels of a position. Fills the rest of `row` with -Inf.
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

// Returns the sum of of_position(position, row) over all positions, in an order
// that depends on nothing but the shape. Calls of one chunk have the same
// `row`, the doubles that `buffers.rows` has for a chunk.
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

double DivisorOf(const CrossEntropyShape& shape) {
  if (!shape.is_mean) return 1;
  return shape.denominator == 0 ? static_cast<double>(shape.positions())
                                : shape.denominator;
}

// Calls visit(channel, offset) for each channel of a position, padding
// included.
template <typename Visit>
void ForChannels(const CrossEntropyShape& shape, int64_t position,
                 const Visit& visit) {
  const int64_t offset = shape.Offset(position);
  for (int64_t b = 0; b < shape.logits.block_count(); ++b) {
    for (int64_t i = 0; i < shape.logits.block; ++i) {
      visit(b * shape.logits.block + i, offset + shape.BlockOffset(b) + i);
    }
  }
}

}  // namespace

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

void RunSoftCrossEntropy(const CrossEntropyShape& shape,
                         const CrossEntropyBuffers& buffers,
                         const RunContext& context) {
  const auto* weight = context.Read<float>(buffers.weight);
  auto* gradient = context.Write<float>(buffers.gradient);
  auto* log_sums = context.Write<double>(buffers.doubles);
  const int64_t channels = shape.logits.channels;
  const double smooth = shape.label_smoothing / static_cast<double>(channels);
  const double divisor = DivisorOf(shape);
  const auto loss_of = [&](int64_t position, absl::Span<double> rows) {
    const int64_t size = shape.row_size();
    const absl::Span<double> logits = rows.subspan(0, size);
    const absl::Span<double> row = rows.subspan(size, size);
    const absl::Span<double> shares = rows.subspan(2 * size);
    LoadChannels(shape, context.At(buffers.logits), position, logits);
    LoadChannels(shape, context.At(buffers.target), position, shares);
    std::copy(logits.begin(), logits.end(), row.begin());
    const SoftmaxSums sums = Exponentiate(row);
    const double log_sum = sums.largest + std::log(sums.sum);
    log_sums[position] = log_sum;
    double loss = 0, total = 0;
    for (int64_t c = 0; c < channels; ++c) {
      shares[c] = ((1 - shape.label_smoothing) * shares[c] + smooth) *
                  (weight != nullptr ? weight[c] : 1);
      loss += shares[c] * (log_sum - logits[c]);
      total += shares[c];
    }
    if (gradient != nullptr) {
      ForChannels(shape, position, [&](int64_t c, int64_t at) {
        const double slope =
            c < channels ? row[c] / sums.sum * total - shares[c] : 0;
        gradient[at] = static_cast<float>(slope / divisor);
      });
    }
    return loss;
  };
  const double sum = SumOfPositions(shape, buffers, context, loss_of);
  *context.Write<float>(buffers.loss) = static_cast<float>(sum / divisor);
}

void RunTargetGradient(const CrossEntropyShape& shape,
                       const CrossEntropyBuffers& buffers,
                       BufferId loss_gradient, BufferId target_gradient,
                       const RunContext& context) {
  const auto* weight = context.Read<float>(buffers.weight);
  const auto* log_sums = context.Read<double>(buffers.doubles);
  const std::byte* const logits = context.At(buffers.logits);
  std::byte* const gradient = context.At(target_gradient);
  const DataType dtype = shape.logits.dtype;
  const double scale = *context.Read<float>(loss_gradient) *
                       (1 - shape.label_smoothing) / DivisorOf(shape);
  context.ForParts(shape.chunks(), [&](int64_t chunk) {
    const int64_t end = std::min(shape.positions(), (chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i) {
      ForChannels(shape, i, [&](int64_t c, int64_t at) {
        double slope = 0;
        if (c < shape.logits.channels) {
          slope = scale * (weight != nullptr ? weight[c] : 1) *
                  (log_sums[i] - LoadElement(dtype, logits, at));
        }
        StoreElement(dtype, static_cast<float>(slope), gradient, at);
      });
    }
  });
}

absl::Status CheckTargets(const ProgramStep& step,
                          const CrossEntropyShape& shape,
                          const int64_t* targets) {
  for (int64_t i = 0; i < shape.positions(); ++i) {
    const bool is_class = targets[i] >= 0 && targets[i] < shape.logits.channels;
    if (is_class || targets[i] == shape.ignore_index) continue;
    return OutOfRange(
        absl::StrCat(step.operands[1], "[", i, "]"), absl::StrCat(targets[i]),
        absl::StrCat("a class from 0 to ", shape.logits.channels - 1, ", or ",
                     shape.ignore_index));
  }
  return absl::OkStatus();
}

}  // namespace convgrad::onednn
