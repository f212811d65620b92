#include "backends/kernels/operators/magnitude.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace convgrad {
namespace {

constexpr int64_t kPart = 1 << 16;

// Returns the bits of the largest magnitude. Compares bits as integers: they
// order magnitudes, with NaN as the largest.
template <class Bits, class T>
Bits LargestBits(const T* values, int64_t count) {
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max() / 2;
  Bits largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<Bits>(values[i]);
    largest = std::max(largest, static_cast<Bits>(bits & kMagnitude));
  }
  return largest;
}

float LargestOf(const float* values, int64_t count) {
  return std::bit_cast<float>(LargestBits<uint32_t>(values, count));
}

float LargestOf(const uint16_t* bf16, int64_t count) {
  const uint32_t bits = LargestBits<uint16_t>(bf16, count);
  return std::bit_cast<float>(bits << 16);
}

template <class T>
float LargestInParts(const T* values, int64_t count, RunParts run,
                     float* largest) {
  const int64_t parts = MagnitudeParts(count);
  run(parts, [&](int64_t part) {
    const int64_t begin = part * kPart;
    largest[part] = LargestOf(values + begin, std::min(kPart, count - begin));
  });
  return LargestOf(largest, parts);
}

}  // namespace

float LargestMagnitude(absl::Span<const float> values) {
  return LargestOf(values.data(), std::ssize(values));
}

int64_t MagnitudeParts(int64_t count) { return (count + kPart - 1) / kPart; }

float LargestMagnitude(DataType dtype, const void* values, int64_t count,
                       RunParts run, float* largest) {
  if (dtype == DataType::kBF16) {
    return LargestInParts(static_cast<const uint16_t*>(values), count, run,
                          largest);
  }
  return LargestInParts(static_cast<const float*>(values), count, run, largest);
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
