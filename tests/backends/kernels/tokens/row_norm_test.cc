#include "backends/kernels/tokens/row_norm.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr int64_t kLength = 37;

// Returns the gradient of a row of a layer_norm without a weight.
std::vector<double> GradientOf(const float* x, const float* dy) {
  double mean = 0, variance = 0, sum = 0, product = 0;
  for (int64_t i = 0; i < kLength; ++i) mean += x[i] / double{kLength};
  for (int64_t i = 0; i < kLength; ++i) {
    variance += (x[i] - mean) * (x[i] - mean) / kLength;
  }
  const double deviation = std::sqrt(variance);
  for (int64_t i = 0; i < kLength; ++i) {
    sum += dy[i] / double{kLength};
    product += dy[i] * (x[i] - mean) / deviation / kLength;
  }
  std::vector<double> dx(kLength);
  for (int64_t i = 0; i < kLength; ++i) {
    dx[i] = (dy[i] - sum - (x[i] - mean) / deviation * product) / deviation;
  }
  return dx;
}

TEST(RowNormTest, GradientsOfRowsFarFromZero) {
  RowNorm norm;
  norm.rows = 5;
  norm.length = kLength;
  std::mt19937_64 random(1);
  std::normal_distribution<float> values;
  std::vector<float> x(norm.rows * kLength), dy(x.size());
  for (float& value : x) value = 1e6F + values(random);
  for (float& value : dy) value = values(random);
  ForEachSimdTarget([&] {
    std::vector<float> y(x.size()), dx(x.size());
    std::vector<double> moments(norm.moments()), scratch(norm.scratch());
    NormalizeRows(norm, {x.data(), nullptr, nullptr, y.data(), moments.data()},
                  InOrder);
    NormalizeRowsBackward(norm,
                          {.dy = dy.data(),
                           .x = x.data(),
                           .weight = nullptr,
                           .moments = moments.data(),
                           .dx = dx.data(),
                           .weight_gradient = nullptr,
                           .bias_gradient = nullptr,
                           .scratch = scratch.data()},
                          InOrder);
    for (int64_t i = 0; i < std::ssize(x); ++i) {
      const int64_t first = i / kLength * kLength;
      EXPECT_NEAR(dx[i], GradientOf(&x[first], &dy[first])[i - first], 1e-6);
    }
  });
}

}  // namespace
}  // namespace convgrad
