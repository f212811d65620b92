#include "backends/kernels/operators/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> FilledUp(std::vector<double> logits) {
  while (logits.size() % kSoftmaxLanes != 0) logits.push_back(-kInf);
  return logits;
}

TEST(Exponentiate, IsTheExponentialFromTheLargestOn) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> values(-400, 300);
  ForEachSimdTarget([&] {
    for (size_t count : {1, 7, 8, 10, 64, 1000}) {
      std::vector<double> logits(count);
      for (double& logit : logits) logit = values(random);
      const double largest = *std::max_element(logits.begin(), logits.end());
      std::vector<double> row = FilledUp(logits);
      const SoftmaxSums sums = Exponentiate(absl::MakeSpan(row));
      EXPECT_EQ(sums.largest, largest);
      double sum = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        const double expected = i < count ? std::exp(logits[i] - largest) : 0;
        // The bound in the header.
        EXPECT_NEAR(row[i], expected, expected * 0x1p-51 + 1e-307);
        sum += expected;
      }
      EXPECT_NEAR(sums.sum, sum, sum * 1e-13);
    }
  });
}

TEST(Exponentiate, NanAndInfAreSeen) {
  ForEachSimdTarget([&] {
    for (const double odd : {static_cast<double>(NAN), kInf}) {
      for (const size_t at : {size_t{0}, size_t{9}}) {
        std::vector<double> row = FilledUp(std::vector<double>(10, 1.0));
        row[at] = odd;
        EXPECT_TRUE(std::isnan(Exponentiate(absl::MakeSpan(row)).sum));
        EXPECT_TRUE(std::isnan(row[at]));
      }
    }
    std::vector<double> nothing = FilledUp({-kInf});
    EXPECT_TRUE(std::isnan(Exponentiate(absl::MakeSpan(nothing)).sum));
  });
}

TEST(Exponentiate, MinusInfIsNothing) {
  ForEachSimdTarget([&] {
    std::vector<double> row = FilledUp({3, -kInf, 3});
    EXPECT_EQ(Exponentiate(absl::MakeSpan(row)).sum, 2);
    EXPECT_EQ(row[1], 0);
  });
}

TEST(SoftmaxGradient, IsRoundedOnce) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<float> values(-1, 1);
  ForEachSimdTarget([&] {
    for (size_t count : {1, 7, 16, 197}) {
      std::vector<float> y(count), dy(count);
      for (size_t i = 0; i < count; ++i) {
        y[i] = std::fabs(values(random));
        dy[i] = values(random);
      }
      double sum = 0;
      for (size_t i = 0; i < count; ++i) sum += double{y[i]} * dy[i];
      std::vector<float> dx(count), in_place = dy, over_y = y;
      SoftmaxGradient(y, dy.data(), dx.data());
      SoftmaxGradient(y, in_place.data(), in_place.data());
      SoftmaxGradient(over_y, dy.data(), over_y.data());
      EXPECT_EQ(in_place, dx);
      EXPECT_EQ(over_y, dx);
      for (size_t i = 0; i < count; ++i) {
        const double exact = y[i] * (dy[i] - sum);
        EXPECT_NEAR(dx[i], exact, std::fabs(exact) * 0x1p-24 + 1e-14);
      }
    }
  });
}

// Returns the softmax, in f64.
std::vector<double> Exact(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> exact;
  double sum = 0;
  for (const float logit : logits) {
    exact.push_back(std::exp(logit - largest));
    sum += exact.back();
  }
  for (double& value : exact) value /= sum;
  return exact;
}

TEST(Softmax, IsWithinItsBounds) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<float> values(-60, 20);
  ForEachSimdTarget([&] {
    for (size_t count :
         {1, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 49, 197, 1025, 2050}) {
      std::vector<float> logits(count);
      for (float& logit : logits) logit = values(random);
      const std::vector<double> exact = Exact(logits);
      std::vector<float> precise(count), in_f32(count), in_place = logits;
      std::vector<double> scratch(count);
      Softmax(logits, absl::MakeSpan(scratch), precise.data());
      Softmax(in_place, absl::MakeSpan(scratch), in_place.data());
      EXPECT_EQ(in_place, precise);
      SoftmaxInF32(logits, in_f32.data());
      in_place = logits;
      SoftmaxInF32(in_place, in_place.data());
      EXPECT_EQ(in_place, in_f32);
      for (size_t i = 0; i < count; ++i) {
        // The first one is rounded once, the bound of the other is the
        // header's.
        EXPECT_NEAR(precise[i], exact[i], exact[i] * 0x1.01p-24);
        EXPECT_NEAR(in_f32[i], exact[i], exact[i] * 0x1p-16);
      }
    }
  });
}

TEST(Softmax, EqualLogitsHaveEqualParts) {
  ForEachSimdTarget([&] {
    for (size_t count : {2, 8, 49}) {
      std::vector<float> row(count, 3.25f);
      std::vector<double> scratch(count);
      Softmax(row, absl::MakeSpan(scratch), row.data());
      const float part = 1.0f / static_cast<float>(count);
      EXPECT_EQ(row, std::vector<float>(count, part));
    }
  });
}

TEST(Softmax, FarBelowTheLargestIsZero) {
  ForEachSimdTarget([&] {
    for (const float low : {-104.0f, -700.0f, -1e4f, -3e38f}) {
      std::vector<float> row(11, low);
      row[5] = 0;
      std::vector<double> scratch(row.size());
      Softmax(row, absl::MakeSpan(scratch), row.data());
      std::vector<float> expected(11, 0);
      expected[5] = 1;
      EXPECT_EQ(row, expected) << low;
    }
  });
}

TEST(Softmax, LongRowsAreWithinTheBound) {
  ForEachSimdTarget([&] {
    std::vector<float> row(300'000, -1);
    row[0] = 0;
    const std::vector<double> exact = Exact(row);
    SoftmaxInF32(row, row.data());
    EXPECT_NEAR(row[0], exact[0], exact[0] * 0x1p-16);
    EXPECT_NEAR(row[1], exact[1], exact[1] * 0x1p-16);
  });
}

TEST(Softmax, IsZeroAtMinusInfAndNanWhereItHasNoValue) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto both = [](const std::vector<float>& row) {
    std::vector<float> precise = row, in_f32 = row;
    std::vector<double> scratch(row.size());
    Softmax(precise, absl::MakeSpan(scratch), precise.data());
    SoftmaxInF32(in_f32, in_f32.data());
    return std::pair(precise, in_f32);
  };
  ForEachSimdTarget([&] {
    for (const size_t at : {size_t{0}, size_t{20}}) {
      std::vector<float> row(21, 1);
      row[at] = -kInfinity;
      const auto [precise, in_f32] = both(row);
      EXPECT_EQ(precise[at], 0);
      EXPECT_EQ(in_f32[at], 0);
      EXPECT_EQ(precise[10], 0.05F);
      EXPECT_NEAR(in_f32[10], 0.05F, 0.05F * 0x1p-16);
      for (const float odd : {NAN, kInfinity}) {
        row[at] = odd;
        const auto [first, second] = both(row);
        EXPECT_TRUE(std::isnan(first[10]) && std::isnan(second[10])) << odd;
        EXPECT_TRUE(std::isnan(first[at]) && std::isnan(second[at])) << odd;
      }
    }
    const auto [first, second] = both(std::vector<float>(21, -kInfinity));
    EXPECT_TRUE(std::isnan(first[0]) && std::isnan(second[20]));
  });
}

}  // namespace
}  // namespace convgrad
