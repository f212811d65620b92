#include "backends/kernels/operators/magnitude.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace convgrad {
namespace {

constexpr int64_t kPart = 1 << 16;

}  // namespace

// Compares bits as integers: they order magnitudes, with NaN as the largest.
float LargestMagnitude(absl::Span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffU);
  }
  return std::bit_cast<float>(largest);
}

int64_t MagnitudeParts(int64_t count) { return (count + kPart - 1) / kPart; }

float LargestMagnitude(absl::Span<const float> values, RunParts run,
                       float* largest) {
  const auto count = static_cast<int64_t>(values.size());
  const int64_t parts = MagnitudeParts(count);
  run(parts, [&](int64_t part) {
    largest[part] = LargestMagnitude(values.subspan(part * kPart, kPart));
  });
  return LargestMagnitude({largest, static_cast<size_t>(parts)});
}

float SumOfMagnitudes(absl::Span<const float> values) {
  // Several sums, which the compiler keeps in vectors.
  constexpr size_t kSums = 16;
  float sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += std::abs(values[i + j]);
  }
  float sum = 0;
  for (; i < values.size(); ++i) sum += std::abs(values[i]);
  for (const float more : sums) sum += more;
  return sum;
}

}  // namespace convgrad
