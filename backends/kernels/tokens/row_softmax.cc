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

// Memory for a row.
struct RowMemory {
  explicit RowMemory(int64_t length)
      : floats(length), doubles(length), others(length) {}

  std::vector<float> floats;
  std::vector<double> doubles, others;
};

// Calls row(first, memory) for each row of a part. The row's elements are at
// first + i * inner; `memory` is for as many elements, rounded up to
// a multiple of kSoftmaxLanes.
template <typename Row>
void ForEachRow(const RowSoftmax& softmax, RunParts run, const Row& row) {
  const int64_t padded =
      CeilDiv(softmax.length, int64_t{kSoftmaxLanes}) * int64_t{kSoftmaxLanes};
  const int64_t rows = softmax.outer * softmax.inner;
  const int64_t per_part = std::max<int64_t>(16384 / softmax.length, 1);
  run(CeilDiv(rows, per_part), [&](int64_t part) {
    RowMemory memory(padded);
    const int64_t end = std::min(rows, (part + 1) * per_part);
    for (int64_t i = part * per_part; i < end; ++i) {
      row(i / softmax.inner * softmax.length * softmax.inner +
              i % softmax.inner,
          memory);
    }
  });
}

void LogSoftmaxRows(const RowSoftmax& softmax, const std::byte* x, std::byte* y,
                    RunParts run) {
  ForEachRow(softmax, run, [&](int64_t first, RowMemory& memory) {
    const auto at = [&](int64_t i) { return first + i * softmax.inner; };
    std::vector<double>& row = memory.doubles;
    for (int64_t i = 0; i < softmax.length; ++i) {
      row[i] = LoadElement(softmax.dtype, x, at(i));
    }
    std::fill(row.begin() + softmax.length, row.end(),
              -std::numeric_limits<double>::infinity());
    const SoftmaxSums sums = Exponentiate(absl::MakeSpan(row));
    const double logarithm = std::log(sums.sum);
    for (int64_t i = 0; i < softmax.length; ++i) {
      const double value =
          LoadElement(softmax.dtype, x, at(i)) - sums.largest - logarithm;
      StoreElement(softmax.dtype, static_cast<float>(value), y, at(i));
    }
  });
}

// Tells that a row's elements are floats side by side.
bool IsDense(const RowSoftmax& softmax) {
  return !softmax.is_logarithm && softmax.inner == 1 &&
         softmax.dtype == DataType::kF32;
}

}  // namespace

void SoftmaxRows(const RowSoftmax& softmax, const void* x, void* y,
                 RunParts run) {
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(y);
  if (softmax.is_logarithm) return LogSoftmaxRows(softmax, from, to, run);
  const auto length = static_cast<size_t>(softmax.length);
  if (IsDense(softmax)) {
    const auto* rows = static_cast<const float*>(x);
    auto* results = static_cast<float*>(y);
    return ForEachRow(softmax, run, [&](int64_t first, RowMemory& memory) {
      Softmax({rows + first, length}, absl::MakeSpan(memory.doubles),
              results + first);
    });
  }
  ForEachRow(softmax, run, [&](int64_t first, RowMemory& memory) {
    const auto at = [&](int64_t i) { return first + i * softmax.inner; };
    const auto row = absl::MakeSpan(memory.floats).first(length);
    for (int64_t i = 0; i < softmax.length; ++i) {
      row[i] = LoadElement(softmax.dtype, from, at(i));
    }
    if (softmax.dtype == DataType::kBF16) {
      SoftmaxInF32(row, row.data());
    } else {
      Softmax(row, absl::MakeSpan(memory.doubles), row.data());
    }
    for (int64_t i = 0; i < softmax.length; ++i) {
      StoreElement(softmax.dtype, row[i], to, at(i));
    }
  });
}

void SoftmaxRowsBackward(const RowSoftmax& softmax, const void* dy,
                         const void* y, void* dx, RunParts run) {
  const auto* gradients = static_cast<const std::byte*>(dy);
  const auto* results = static_cast<const std::byte*>(y);
  if (IsDense(softmax)) {
    return ForEachRow(softmax, run, [&](int64_t first, RowMemory&) {
      SoftmaxGradient({static_cast<const float*>(y) + first,
                       static_cast<size_t>(softmax.length)},
                      static_cast<const float*>(dy) + first,
                      static_cast<float*>(dx) + first);
    });
  }
  ForEachRow(softmax, run, [&](int64_t first, RowMemory& memory) {
    std::vector<double>& gradient = memory.doubles;
    std::vector<double>& result = memory.others;
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
