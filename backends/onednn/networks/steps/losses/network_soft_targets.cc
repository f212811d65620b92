#include "backends/onednn/networks/steps/losses/network_soft_targets.h"

#include <algorithm>
#include <cmath>

#include "backends/kernels/operators/elements.h"

namespace convgrad::onednn {
namespace {

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
    const int64_t end =
        std::min(shape.positions(), (chunk + 1) * kCrossEntropyChunk);
    for (int64_t i = chunk * kCrossEntropyChunk; i < end; ++i) {
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

}  // namespace convgrad::onednn
