// `MakeSample` makes elements on which routines that confuse dtypes, rounding
// or special values give different results.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "backends/core/tensor_descriptor.h"
#include "gtest/gtest.h"

namespace convgrad {

inline constexpr DataType kAllDataTypes[] = {DataType::kF32, DataType::kBF16,
                                             DataType::kF16};
inline constexpr Layout kBothLayouts[] = {Layout::kNCX, Layout::kNXC};

inline double SmallestSubnormal(DataType dtype) {
  return dtype == DataType::kF32    ? 0x1p-149
         : dtype == DataType::kBF16 ? 0x1p-133
                                    : 0x1p-24;
}

// The memory of a row-major tensor.
struct Sample {
  explicit Sample(const TensorDescriptor& d)
      : descriptor(d), bytes(*ByteSize(d)) {}

  std::byte* At(int64_t offset) {
    return bytes.data() + offset * ByteSizeOf(descriptor.dtype);
  }
  double Value(int64_t offset) const {
    return LoadAsDouble(descriptor.dtype,
                        bytes.data() + offset * ByteSizeOf(descriptor.dtype));
  }

  TensorDescriptor descriptor;
  std::vector<std::byte> bytes;
};

// Returns multiples of `unit` by integers up to 100, and -0. If `nonfinite`,
// about one element in 100 is NaN, Inf or -Inf.
inline Sample MakeSample(const TensorDescriptor& descriptor, double unit,
                         bool nonfinite, uint32_t seed) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kSpecials[] = {kInfinity, -kInfinity,
                                  std::numeric_limits<double>::quiet_NaN()};
  Sample sample(descriptor);
  std::mt19937 random(seed);
  const int64_t count = ElementCount(descriptor);
  for (int64_t i = 0; i < count; ++i) {
    const int draw = static_cast<int>(random() % 201) - 100;
    double value = draw == 0 ? -0.0 : draw * unit;
    if (nonfinite && random() % 100 == 0) value = kSpecials[random() % 3];
    StoreRounded(descriptor.dtype, value, sample.At(i));
  }
  return sample;
}

// Returns whether an element has the bits of `expected` rounded to its dtype.
// For NaN any NaN is accepted.
inline testing::AssertionResult IsRounded(const Sample& sample, int64_t offset,
                                          double expected) {
  Sample rounded(
      {.dtype = sample.descriptor.dtype, .layout = Layout::kNCX, .dims = {1}});
  StoreRounded(sample.descriptor.dtype, expected, rounded.At(0));
  const double value = sample.Value(offset), wanted = rounded.Value(0);
  const bool same =
      std::isnan(wanted)
          ? std::isnan(value)
          : value == wanted && std::signbit(value) == std::signbit(wanted);
  if (same) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "element " << offset << " is " << value << ", not " << wanted;
}

}  // namespace convgrad
