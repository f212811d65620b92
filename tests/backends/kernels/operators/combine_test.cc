// Compares arithmetic of two activations with plain loops in double, with every
// instruction set.
#include "backends/kernels/operators/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

struct Row {
  Combination combination;
  double (*of)(double dy, double a, double b);
};

double Shared(double dy, double a, double b) { return a == b ? dy / 2 : dy; }

constexpr Row kRows[] = {
    {Combination::kAdd, [](double, double a, double b) { return a + b; }},
    {Combination::kAddRelu,
     [](double, double a, double b) { return a + b <= 0 ? 0 : a + b; }},
    {Combination::kSub, [](double, double a, double b) { return a - b; }},
    {Combination::kMul, [](double, double a, double b) { return a * b; }},
    {Combination::kDiv, [](double, double a, double b) { return a / b; }},
    {Combination::kMaximum,
     [](double, double a, double b) { return std::isnan(a) || a > b ? a : b; }},
    {Combination::kMinimum,
     [](double, double a, double b) { return std::isnan(a) || a < b ? a : b; }},
    {Combination::kPrelu,
     [](double, double a, double b) { return a > 0 ? a : a * b; }},
    {Combination::kEq,
     [](double, double a, double b) { return a == b ? 1.0 : 0.0; }},
    {Combination::kLt,
     [](double, double a, double b) { return a < b ? 1.0 : 0.0; }},
    {Combination::kLe,
     [](double, double a, double b) { return a <= b ? 1.0 : 0.0; }},
    {Combination::kGt,
     [](double, double a, double b) { return a > b ? 1.0 : 0.0; }},
    {Combination::kGe,
     [](double, double a, double b) { return a >= b ? 1.0 : 0.0; }},
    {Combination::kIfNotZero,
     [](double, double a, double b) { return b != 0 ? a : 0; }},
    {Combination::kIfZero,
     [](double, double a, double b) { return b == 0 ? a : 0; }},
    {Combination::kWhere,
     [](double condition, double a, double b) {
       return std::isnan(condition) ? condition : condition != 0 ? a : b;
     }},
    {Combination::kPreluGradient,
     [](double dy, double a, double b) { return a > 0 ? dy : dy * b; }},
    {Combination::kSlopeGradient,
     [](double dy, double a, double) { return a > 0 ? 0 : dy * a; }},
    {Combination::kDivisorGradient,
     [](double dy, double a, double b) { return -dy * (a / b / b); }},
    {Combination::kNotLessGradient,
     [](double dy, double a, double b) {
       return a < b ? 0 : Shared(dy, a, b);
     }},
    {Combination::kNotGreaterGradient, [](double dy, double a, double b) {
       return a > b ? 0 : Shared(dy, a, b);
     }}};

// Allows one rounding to the dtype and a few in f32.
void ExpectNear(double got, double want, DataType dtype, double terms) {
  if (!std::isfinite(want)) {
    ASSERT_EQ(std::isnan(got), std::isnan(want));
    if (!std::isnan(want)) {
      ASSERT_EQ(got, want);
    }
    return;
  }
  ASSERT_NEAR(got, want,
              UnitRoundoff(dtype) * std::abs(want) +
                  4 * UnitRoundoff(DataType::kF32) * terms +
                  std::numeric_limits<float>::min());
}

// Returns numbers that are often equal, with special values in the first
// channel.
ChannelTensor Operand(const ChannelBlocks& blocks, unsigned seed) {
  ChannelTensor x = Random(blocks, seed, 0.5, 2);
  x.ForEach([&](int64_t n, int64_t c, int64_t s) {
    x.Set(n, c, s, std::round(x.At(n, c, s)));
  });
  const double special[] = {NAN, INFINITY, -INFINITY, -0.0};
  if (blocks.size() == 0) return x;
  const int64_t count = std::min(blocks.spatial, std::ssize(special));
  for (int64_t s = 0; s < count; ++s) x.Set(0, 0, s, special[s]);
  return x;
}

// Returns the result's gradient, or the condition of a choice.
ChannelTensor ThirdOf(const Row& row, const ChannelBlocks& blocks) {
  return row.combination == Combination::kWhere ? Operand(blocks, 3)
                                                : Random(blocks, 3);
}

// Selects one combination for tensors with many parts, which take long to
// check.
bool IsChecked(const ChannelBlocks& blocks, const Row& row) {
  return blocks.spatial < 900 || row.combination == Combination::kSub;
}

template <typename NumberAt>
void Check(const ChannelBlocks& blocks, const Row& row, ChannelTensor* a,
           ChannelTensor* dy, Combined tensors, const NumberAt& number_at) {
  ChannelTensor y(blocks);
  tensors.a = a->data();
  tensors.y = y.data();
  tensors.dy = dy->data();
  Combine(blocks, row.combination, tensors, InOrder);
  y.ForEach([&](int64_t n, int64_t c, int64_t s) {
    const double left = a->At(n, c, s), right = number_at(n, c, s);
    const double want = row.of(dy->At(n, c, s), left, right);
    ExpectNear(y.At(n, c, s), want, blocks.dtype, std::abs(want));
  });
  y.ExpectZeroPadding();
}

TEST(CombineTest, TensorsOfOneShape) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (const Row& row : kRows) {
        if (!IsChecked(blocks, row)) continue;
        SCOPED_TRACE(absl::StrCat(ToText(blocks), " ",
                                  static_cast<int>(row.combination)));
        ChannelTensor a = Operand(blocks, 1), b = Operand(blocks, 2);
        ChannelTensor dy = ThirdOf(row, blocks);
        Check(blocks, row, &a, &dy, {.b = b.data()},
              [&](int64_t n, int64_t c, int64_t s) { return b.At(n, c, s); });
      }
    }
  });
}

TEST(CombineTest, NumbersPerChannelAndImage) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (const Row& row : kRows) {
        if (!IsChecked(blocks, row)) continue;
        for (const bool is_per_image : {false, true}) {
          SCOPED_TRACE(absl::StrCat(ToText(blocks), " ",
                                    static_cast<int>(row.combination)));
          const int64_t stride = is_per_image ? blocks.padded_channels() : 0;
          std::vector<float> numbers(std::max<int64_t>(blocks.batch, 1) *
                                     blocks.padded_channels());
          const auto at = [&](int64_t n, int64_t c, int64_t /*s*/) -> float& {
            return numbers[n * stride + c];
          };
          for (int64_t n = 0; n < blocks.batch; ++n) {
            for (int64_t c = 0; c < blocks.channels; ++c) {
              at(n, c, 0) = static_cast<float>(c % 5) - 2;
            }
          }
          ChannelTensor a = Operand(blocks, 1), dy = ThirdOf(row, blocks);
          Check(blocks, row, &a, &dy,
                {.numbers = numbers.data(), .image_stride = stride}, at);
        }
      }
    }
  });
}

TEST(CombineTest, AccumulatesInPlace) {
  for (const ChannelBlocks& blocks : ManyBlocks()) {
    ChannelTensor a = Random(blocks, 1), b = Random(blocks, 2), y(blocks);
    Combine(blocks, Combination::kAdd,
            {.a = a.data(), .b = b.data(), .y = y.data()}, InOrder);
    Combine(blocks, Combination::kAdd,
            {.a = a.data(), .b = b.data(), .y = a.data()}, OnThreeThreads);
    EXPECT_EQ(a.bytes(), y.bytes()) << ToText(blocks);
  }
}

// Large enough to bypass the caches, if they are aligned.
TEST(CombineTest, LargeResultsHaveTheSameBits) {
  ForEachSimdTarget([] {
    for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
      const ChannelBlocks blocks{2, 32, 70000, 16, dtype};
      LargeTensor x(blocks, 0), aligned(blocks, 0), other(blocks, 4);
      const std::vector<float> numbers(32, 3.0f);
      for (const void* b : {static_cast<const void*>(x.data()),
                            static_cast<const void*>(nullptr)}) {
        Combined tensors = {.a = x.data(), .b = b, .numbers = numbers.data()};
        tensors.y = aligned.data();
        Combine(blocks, Combination::kMul, tensors, InOrder);
        EXPECT_FALSE(aligned == other);
        tensors.y = other.data();
        Combine(blocks, Combination::kMul, tensors, InOrder);
        EXPECT_TRUE(aligned == other);
      }
    }
  });
}

}  // namespace
}  // namespace convgrad
