#include "backends/kernels/tokens/row_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/kernels/operators/elements.h"
#include "backends/kernels/operators/softmax.h"

namespace convgrad {
namespace {

// Calls row(first, doubles) for each row of a part. The row's elements are at
// first + i * inner; `doubles` is memory for two rows.
template <typename Row>
void ForEachRow(const RowSoftmax& softmax, RunParts run, const Row& row) {
  const int64_t padded =
      CeilDiv(softmax.length, int64_t{kSoftmaxLanes}) * int64_t{kSoftmaxLanes};
  const int64_t rows = softmax.outer * softmax.inner;
  const int64_t per_part = std::max<int64_t>(16384 / softmax.length, 1);
  run(CeilDiv(rows, per_part), [&](int64_t part) {
    std::vector<double> doubles(2 * padded);
    const int64_t end = std::min(rows, (part + 1) * per_part);
    for (int64_t i = part * per_part; i < end; ++i) {
      row(i / softmax.inner * softmax.length * softmax.inner +
              i % softmax.inner,
          absl::MakeSpan(doubles).first(padded),
          absl::MakeSpan(doubles).subspan(padded));
    }
  });
}

}  // namespace

void SoftmaxRows(const RowSoftmax& softmax, const void* x, void* y,
                 RunParts run) {
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(y);
  ForEachRow(
      softmax, run,
      [&](int64_t first, absl::Span<double> row, absl::Span<double> /*other*/) {
        const auto at = [&](int64_t i) { return first + i * softmax.inner; };
        for (int64_t i = 0; i < softmax.length; ++i) {
          row[i] = LoadElement(softmax.dtype, from, at(i));
        }
        std::fill(row.begin() + softmax.length, row.end(),
                  -std::numeric_limits<double>::infinity());
        const SoftmaxSums sums = Exponentiate(row);
        const double logarithm = std::log(sums.sum);
        for (int64_t i = 0; i < softmax.length; ++i) {
          const double value = softmax.is_logarithm
                                   ? LoadElement(softmax.dtype, from, at(i)) -
                                         sums.largest - logarithm
                                   : row[i] / sums.sum;
          StoreElement(softmax.dtype, static_cast<float>(value), to, at(i));
        }
      });
}

void SoftmaxRowsBackward(const RowSoftmax& softmax, const void* dy,
                         const void* y, void* dx, RunParts run) {
  const auto* gradients = static_cast<const std::byte*>(dy);
  const auto* results = static_cast<const std::byte*>(y);
  ForEachRow(
      softmax, run,
      [&](int64_t first, absl::Span<double> gradient,
          absl::Span<double> result) {
        const auto at = [&](int64_t i) { return first + i * softmax.inner; };
        double sum = 0;
        for (int64_t i = 0; i < softmax.length; ++i) {
          gradient[i] = LoadElement(softmax.dtype, gradients, at(i));
          result[i] = LoadElement(softmax.dtype, results, at(i));
          sum += softmax.is_logarithm ? gradient[i] : gradient[i] * result[i];
        }
        for (int64_t i = 0; i < softmax.length; ++i) {
          const double value = softmax.is_logarithm
                                   ? gradient[i] - std::exp(result[i]) * sum
                                   : result[i] * (gradient[i] - sum);
          StoreElement(softmax.dtype, static_cast<float>(value),
                       static_cast<std::byte*>(dx), at(i));
        }
      });
}

}  // namespace convgrad
