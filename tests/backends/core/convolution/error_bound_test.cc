#include "backends/core/convolution/error_bound.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(ErrorBound, CountsProductsAsTheContractDoes) {
  const ConvProblem problem = *Parse("conv2d_n2_c6_o9_g3_i5_k3_s2");
  EXPECT_EQ(ProductsPerElement(problem, Result::kOutput), 2 * 9);
  EXPECT_EQ(ProductsPerElement(problem, Result::kGradInput), 3 * 9);
  EXPECT_EQ(ProductsPerElement(problem, Result::kGradWeight), 2 * 4);
  EXPECT_EQ(ProductsPerElement(problem, Result::kGradBias), 2 * 4);
  const ConvProblem mirrored = *Parse("convtranspose2d_n2_c9_o6_g3_i2_k3_s2");
  EXPECT_EQ(ProductsPerElement(mirrored, Result::kGradInput), 2 * 9);
  EXPECT_EQ(ProductsPerElement(mirrored, Result::kOutput), 3 * 9);
  EXPECT_EQ(ProductsPerElement(mirrored, Result::kGradWeight), 2 * 4);
  EXPECT_EQ(ProductsPerElement(mirrored, Result::kGradBias), 2 * 25);
}

// The bound is 1.01 u |ref| + 4 sqrt(K + 2) 2^-24 S + the smallest step, times
// the scale.
TEST(ErrorBound, AllowsWhatTheContractAllows) {
  ConvOperation operation =
      WholeOperation(*Parse("conv2d_n1_c7_o1_i4_k1"), Direction::kForward,
                     DataType::kF16, Layout::kNCX);
  ResultRequest& result = operation.results[0];
  result.scale = -2;
  const double allowed = ErrorBound(operation, result).Allowed(-3, 5);
  EXPECT_DOUBLE_EQ(
      allowed, 2 * (1.01 * std::ldexp(3, -11) + 4 * 3 * std::ldexp(5, -24)) +
                   std::ldexp(1, -24));
  result.descriptor.dtype = DataType::kF32;
  EXPECT_DOUBLE_EQ(ErrorBound(operation, result).Allowed(1, 0),
                   2 * 1.01 * std::ldexp(1, -24) + std::ldexp(1, -149));
}

TEST(ErrorBound, GivesErrorsInUnitsOfWhatIsAllowed) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  ConvOperation operation =
      WholeOperation(*Parse("conv2d_n1_c7_o1_i4_k1"), Direction::kForward,
                     DataType::kF16, Layout::kNCX);
  ResultRequest& result = operation.results[0];
  result.scale = -2;
  const ErrorBound bound(operation, result);
  EXPECT_EQ(bound.Share(6, -3, 5), 0);
  EXPECT_NEAR(bound.Share(6 + 2 * bound.Allowed(-3, 5), -3, 5), 2, 1e-9);
  EXPECT_EQ(bound.Share(kInfinity, -3, 5), kInfinity);
  EXPECT_EQ(bound.Share(nan, -3, 5), kInfinity);
  // 65520 is the first number that f16 rounds to Inf; 1.01 u of it is 32.3.
  EXPECT_EQ(bound.Share(kInfinity, -65520 / 2.0, 0), 0);
  EXPECT_EQ(bound.Share(kInfinity, -65488 / 2.0, 0), 0);
  EXPECT_EQ(bound.Share(kInfinity, -65472 / 2.0, 0), kInfinity);
  EXPECT_EQ(bound.Share(-kInfinity, -65520 / 2.0, 0), kInfinity);
  EXPECT_GT(bound.Share(65504, -66000 / 2.0, 0), 1);
  // Sums that f32 can't hold.
  EXPECT_EQ(bound.Share(nan, 1, std::ldexp(1, 127)), 0);
  // A result that isn't finite has no finite error.
  EXPECT_EQ(bound.Share(1, nan, nan), kInfinity);
  EXPECT_EQ(bound.Share(nan, -kInfinity, kInfinity), 0);
  result.scale = 0;
  EXPECT_EQ(ErrorBound(operation, result).Share(0, nan, nan), 0);
}

}  // namespace
}  // namespace convgrad
