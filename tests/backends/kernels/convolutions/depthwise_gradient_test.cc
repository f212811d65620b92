// Tests the gradient of depthwise weights against the definition.
#include "backends/kernels/convolutions/depthwise_gradient.h"

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

// A convolution with its tensors in channel blocks; the padding is 0.
struct Example {
  Example(const DepthwiseShape& of, const std::function<float()>& draw)
      : shape(of),
        input(Fill(of.y.in * of.x.in, draw)),
        gradient(Fill(of.y.out * of.x.out, draw)) {}

  std::vector<float> Fill(int64_t spatial, const std::function<float()>& draw) {
    std::vector<float> values(shape.batch * shape.blocks() * spatial *
                              shape.block);
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t block = i / (spatial * shape.block) % shape.blocks();
      const int64_t channel = block * shape.block + i % shape.block;
      values[i] = channel < shape.channels ? draw() : 0;
    }
    return values;
  }

  float At(const std::vector<float>& tensor, int64_t spatial, int64_t n,
           int64_t c, int64_t at) const {
    const int64_t image = n * shape.blocks() + c / shape.block;
    return tensor[(image * spatial + at) * shape.block + c % shape.block];
  }

  std::vector<double> Expected() const {
    const ConvAxis &y = shape.y, &x = shape.x;
    std::vector<double> sums(shape.channels * y.kernel * x.kernel);
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t c = i / (y.kernel * x.kernel);
      const int64_t ky = i / x.kernel % y.kernel, kx = i % x.kernel;
      for (int64_t at = 0; at < shape.batch * y.out * x.out; ++at) {
        const int64_t n = at / (y.out * x.out), o = at % (y.out * x.out);
        const int64_t iy = o / x.out * y.stride + ky * y.dilation - y.pad;
        const int64_t ix = o % x.out * x.stride + kx * x.dilation - x.pad;
        if (iy < 0 || iy >= y.in || ix < 0 || ix >= x.in) continue;
        sums[i] += double{At(gradient, y.out * x.out, n, c, o)} *
                   At(input, y.in * x.in, n, c, iy * x.in + ix);
      }
    }
    return sums;
  }

  std::vector<float> Run(bool is_backward_order = false) const {
    const int64_t count = shape.channels * shape.y.kernel * shape.x.kernel;
    constexpr float kGuard = 12345;
    std::vector<float> result(count + 1, NAN);
    result[count] = kGuard;
    AddUpDepthwiseGradient(shape,
                           {input.data(), gradient.data(), result.data()},
                           [&](int64_t parts, auto part) {
                             for (int64_t i = 0; i < parts; ++i) {
                               part(is_backward_order ? parts - 1 - i : i);
                             }
                           });
    EXPECT_EQ(result[count], kGuard);
    result.pop_back();
    return result;
  }

  DepthwiseShape shape;
  std::vector<float> input, gradient;
};

float Integer() {
  static std::mt19937 generator(1);
  return static_cast<float>(static_cast<int>(generator() % 9) - 4);
}

std::vector<DepthwiseShape> Shapes() {
  std::vector<DepthwiseShape> shapes;
  for (int64_t block : {8, 16}) {
    shapes.push_back({2, 20, block, {9, 9, 7, 1, 1, 3}, {11, 11, 7, 1, 1, 3}});
    shapes.push_back({1, 16, block, {7, 7, 5, 1, 1, 2}, {7, 7, 5, 1, 1, 2}});
    shapes.push_back({3, 9, block, {14, 7, 5, 2, 1, 2}, {13, 7, 5, 2, 1, 2}});
    // Dilation, and pads at one end.
    shapes.push_back({1, 8, block, {12, 8, 3, 1, 2, 0}, {12, 12, 4, 1, 2, 6}});
    // Windows larger than the image, of which some taps read padding only.
    shapes.push_back({1, 5, block, {2, 2, 7, 1, 1, 3}, {1, 1, 9, 1, 1, 4}});
    shapes.push_back(
        {2, 8, block, {3, 5, 31, 1, 1, 16}, {40, 41, 31, 1, 1, 16}});
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    shapes.push_back(
        {1, 8, block, {4, 1, 5, kMost, 1, 1}, {3, 1, 5, kMost, 1, 2}});
    // More than one short sum a row.
    shapes.push_back({1, 8, block, {1, 1, 1, 1, 1, 0}, {300, 300, 6, 1, 1, 2}});
  }
  return shapes;
}

TEST(DepthwiseGradient, IsExactOnIntegers) {
  ForEachSimdTarget([] {
    for (const DepthwiseShape& shape : Shapes()) {
      const Example example(shape, Integer);
      const std::vector<double> expected = example.Expected();
      EXPECT_EQ(example.Run(),
                std::vector<float>(expected.begin(), expected.end()));
    }
  });
}

TEST(DepthwiseGradient, OfNoImageIsZero) {
  const Example example({0, 8, 8, {7, 7, 5, 1, 1, 2}, {7, 7, 5, 1, 1, 2}},
                        Integer);
  EXPECT_EQ(example.Run(), std::vector<float>(8 * 25));
}

TEST(DepthwiseGradient, HasTheSameBitsInAnyOrder) {
  std::mt19937 generator(2);
  std::normal_distribution<float> normal;
  const Example example(Shapes()[0], [&] { return normal(generator); });
  EXPECT_EQ(example.Run(), example.Run(true));
}

TEST(DepthwiseGradient, AddsUpManyProductsInShortSums) {
  ForEachSimdTarget([] {
    std::mt19937 generator(3);
    std::normal_distribution<float> normal;
    const Example example(
        {4, 16, 16, {64, 64, 5, 1, 1, 2}, {64, 64, 5, 1, 1, 2}},
        [&] { return normal(generator); });
    const std::vector<double> expected = example.Expected();
    const std::vector<float> got = example.Run();
    double error = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += (got[i] - expected[i]) * (got[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    // One long sum has some 2e-6.
    EXPECT_LT(std::sqrt(error / norm), 3e-7);
  });
}

// Numbers of one sign, whose roundings may all have the same sign.
TEST(DepthwiseGradient, AddsLongRowsWithinTheErrorBound) {
  ForEachSimdTarget([] {
    for (const auto& [batch, rows, columns] :
         {std::array<int64_t, 3>{1, 1, 20000},
          {1, 2, 127},
          {1, 3, 63},
          {2, 1, 90},
          {1, 60, 200},
          {2, 56, 56}}) {
      const auto products = static_cast<double>(batch * rows * columns);
      for (int i = 3; i < 20; i += 2) {
        const Example example({batch,
                               16,
                               16,
                               {rows, rows, 1, 1, 1, 0},
                               {columns, columns, 3, 1, 1, 1}},
                              [=] { return 1.0F / static_cast<float>(i); });
        const std::vector<double> expected = example.Expected();
        const std::vector<float> got = example.Run();
        for (size_t j = 0; j < got.size(); ++j) {
          const double bound = (4 * std::sqrt(products + 2) + 1) * 0x1p-24;
          EXPECT_NEAR(got[j], expected[j], bound * expected[j])
              << rows << "x" << columns << " 1/" << i;
        }
      }
    }
  });
}

TEST(DepthwiseGradient, AnInfReachesItsSumsOnly) {
  ForEachSimdTarget([] {
    Example example({1, 8, 8, {9, 9, 5, 1, 1, 2}, {9, 9, 5, 1, 1, 2}}, Integer);
    // Channel 3 of the first pixel, which taps 0 to 2 of both axes read.
    example.input[3] = std::numeric_limits<float>::infinity();
    for (float& value : example.gradient) value = value == 0 ? 1 : value;
    const std::vector<float> got = example.Run();
    for (size_t i = 0; i < got.size(); ++i) {
      const bool reads = i / 25 == 3 && i / 5 % 5 <= 2 && i % 5 <= 2;
      EXPECT_EQ(std::isfinite(got[i]), !reads) << i;
    }
  });
}

}  // namespace
}  // namespace convgrad
