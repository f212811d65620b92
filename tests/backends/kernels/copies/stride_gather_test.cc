// Compares copies of every other element with plain loops, with every
// instruction set.
#include "backends/kernels/copies/stride_gather.h"

#include <cstring>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

template <typename Element>
struct Example {
  Example(const Dims& whole_dims, const Dims& steps) {
    int64_t count = 1;
    for (int64_t extent : whole_dims) count *= extent;
    whole.resize(count);
    std::iota(whole.begin(), whole.end(), Element{1});
    spread.resize(count);
    for (int64_t flat = 0; flat < count; ++flat) {
      bool is_read = true;
      int64_t rest = flat;
      for (size_t i = whole_dims.size(); i-- > 2;) {
        is_read &= rest % whole_dims[i] % steps[i - 2] == 0;
        rest /= whole_dims[i];
      }
      if (!is_read) continue;
      dense.push_back(whole[flat]);
      spread[flat] = whole[flat];
    }
  }
  std::vector<Element> whole, dense, spread;
};

template <typename Element>
void CheckBothWays(DataType dtype, const Dims& whole, const Dims& steps) {
  const Example<Element> example(whole, steps);
  const auto every = StrideGather::Make(dtype, whole, steps);
  ASSERT_TRUE(every.has_value());
  ASSERT_EQ(every->planes(), whole[0] * whole[1]);
  // The last element is a canary; the planes come in two parts.
  const Element canary = 77;
  std::vector<Element> dense(example.dense.size(), canary);
  std::vector<Element> spread(example.spread.size(), canary);
  dense.push_back(canary);
  spread.push_back(canary);
  for (int64_t begin : {int64_t{1}, int64_t{0}}) {
    const int64_t end = begin == 0 ? 1 : every->planes();
    every->Gather(example.whole.data(), dense.data(), begin, end);
    every->Spread(example.dense.data(), spread.data(), begin, end);
  }
  std::vector<Element> expected = example.dense;
  expected.push_back(canary);
  EXPECT_EQ(dense, expected);
  expected = example.spread;
  expected.push_back(canary);
  EXPECT_EQ(spread, expected);
}

TEST(StrideGather, MatchesPlainLoops) {
  ForEachSimdTarget([] {
    for (int64_t width : {2, 4, 6, 8, 14, 16, 26, 30, 32, 34, 56, 90}) {
      SCOPED_TRACE(width);
      CheckBothWays<uint16_t>(DataType::kF16, {2, 3, width}, {2});
      CheckBothWays<uint16_t>(DataType::kBF16, {1, 3, 6, width}, {2, 2});
      CheckBothWays<uint32_t>(DataType::kF32, {1, 2, 3, width}, {1, 2});
      CheckBothWays<uint16_t>(DataType::kF16, {2, 1, 4, 9, width}, {2, 3, 2});
    }
  });
}

TEST(StrideGather, LeavesOtherStepsToReorders) {
  const auto make = [](const Dims& whole, const Dims& steps) {
    return StrideGather::Make(DataType::kF16, whole, steps).has_value();
  };
  EXPECT_TRUE(make({1, 1, 4, 4}, {2, 2}));
  EXPECT_FALSE(make({1, 1, 4, 6}, {2, 3}));
  EXPECT_FALSE(make({1, 1, 4, 4}, {2, 1}));
  EXPECT_FALSE(make({1, 1, 4, 5}, {2, 2}));
  EXPECT_FALSE(make({1, 1, 5, 4}, {2, 2}));
  EXPECT_FALSE(make({4, 4}, {}));
}

}  // namespace
}  // namespace convgrad
