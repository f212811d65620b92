// Tests magnitudes of floats, including NaN and Inf.
#include "backends/kernels/operators/magnitude.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
float InParts(const std::vector<T>& values) {
  std::vector<float> largest(MagnitudeParts(std::ssize(values)));
  return LargestMagnitude(
      sizeof(T) == 2 ? DataType::kBF16 : DataType::kF32, values.data(),
      std::ssize(values),
      [](int64_t count, auto part) {
        for (int64_t i = 0; i < count; ++i) part(i);
      },
      largest.data());
}

TEST(LargestMagnitude, IsThatOfAnyElement) {
  EXPECT_EQ(LargestMagnitude({}), 0);
  std::vector<float> values(200'000, -1.5F);
  for (const size_t at : {size_t{0}, size_t{65'536}, values.size() - 1}) {
    values[at] = -3e38F;
    EXPECT_EQ(LargestMagnitude(values), 3e38F) << at;
    EXPECT_EQ(InParts(values), 3e38F) << at;
    values[at] = -1.5F;
  }
}

TEST(LargestMagnitude, PutsNanAboveInf) {
  std::vector<float> values(100'000, 2);
  values[7] = -kInf;
  EXPECT_EQ(InParts(values), kInf);
  values[70'000] = -NAN;
  EXPECT_TRUE(std::isnan(InParts(values)));
}

TEST(LargestMagnitude, OfBf16) {
  std::vector<uint16_t> values(100'000, 0x3f80);  // 1
  EXPECT_EQ(InParts(values), 1);
  values[99'999] = 0xc040;  // -3
  EXPECT_EQ(InParts(values), 3);
  values[65'535] = 0xff80;  // -Inf
  EXPECT_EQ(InParts(values), kInf);
  values[65'536] = 0xffc0;
  EXPECT_TRUE(std::isnan(InParts(values)));
}

TEST(SumOfMagnitudes, IsTheSum) {
  std::vector<float> values;
  for (int i = 0; i < 37; ++i) {
    EXPECT_EQ(SumOfMagnitudes(values), i * (i + 1) / 2) << i;
    values.push_back(static_cast<float>(i % 2 == 0 ? -(i + 1) : i + 1));
  }
}

TEST(SumOfMagnitudes, TellsWhatIsNotFinite) {
  for (const size_t at : {0, 17, 36}) {
    std::vector<float> values(37, 1);
    values[at] = -kInf;
    EXPECT_EQ(SumOfMagnitudes(values), kInf);
    values[at] = NAN;
    EXPECT_TRUE(std::isnan(SumOfMagnitudes(values)));
  }
  EXPECT_EQ(SumOfMagnitudes(std::vector<float>(40, 3e38F)), kInf);
}

}  // namespace
}  // namespace convgrad
