#include "backends/core/error_bound.h"

#include <cmath>

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

// 1.01 u |ref| + 4 sqrt(K + 2) 2^-24 S + the smallest step, times the scale.
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

}  // namespace
}  // namespace convgrad
