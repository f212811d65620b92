// Element-wise kernels against plain loops in double, with every instruction
// set.
#include "backends/kernels/operators/pointwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kSlope = 0.25f;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Function {
  Activation activation;
  double (*act)(double x);
  // The derivative by the operand, or the result where that is what is saved.
  double (*derivative)(double saved);
};

constexpr Function kFunctions[] = {
    {Activation::kNone, [](double x) { return x; }, [](double) { return 1.0; }},
    {Activation::kRelu, [](double x) { return x <= 0 ? 0 : x; },
     [](double saved) { return saved <= 0 ? 0.0 : 1.0; }},
    {Activation::kRelu6, [](double x) { return x <= 0  ? 0
                                               : x > 6 ? 6
                                                       : x; },
     [](double saved) { return saved <= 0 || saved >= 6 ? 0.0 : 1.0; }},
    {Activation::kLeakyRelu, [](double x) { return x > 0 ? x : x * kSlope; },
     [](double saved) { return saved > 0 ? 1.0 : kSlope; }},
    {Activation::kSigmoid, Sigmoid,
     [](double saved) { return saved * (1 - saved); }},
    {Activation::kSilu, [](double x) { return x * Sigmoid(x); },
     [](double saved) {
       return Sigmoid(saved) * (1 + saved * (1 - Sigmoid(saved)));
     }},
    {Activation::kTanh, [](double x) { return std::tanh(x); },
     [](double saved) { return 1 - saved * saved; }}};

// One rounding to the dtype, and a few in f32.
void ExpectNear(double got, double want, const ChannelBlocks& blocks,
                double terms) {
  if (!std::isfinite(want)) {
    ASSERT_EQ(std::isnan(got), std::isnan(want));
    if (!std::isnan(want)) {
      ASSERT_EQ(got, want);
    }
    return;
  }
  ASSERT_NEAR(got, want,
              UnitRoundoff(blocks.dtype) * std::abs(want) +
                  6 * UnitRoundoff(DataType::kF32) * terms +
                  std::numeric_limits<float>::min());
}

// With what is special among numbers in the first channel.
ChannelTensor Operand(const ChannelBlocks& blocks, unsigned seed) {
  ChannelTensor x = Random(blocks, seed, 0.5, 4);
  const double special[] = {0, 6, NAN, kInf, -kInf, -0.0, 100, -100};
  if (blocks.size() == 0) return x;
  const int64_t count = std::min(blocks.spatial, std::ssize(special));
  for (int64_t s = 0; s < count; ++s) x.Set(0, 0, s, special[s]);
  return x;
}

TEST(PointwiseTest, Activations) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (const Function& function : kFunctions) {
        const Activation activation = function.activation;
        SCOPED_TRACE(
            absl::StrCat(ToText(blocks), " ", static_cast<int>(activation)));
        ChannelTensor x = Operand(blocks, 1), y(blocks);
        Activate(blocks, {activation, kSlope}, x.data(), y.data(), InOrder);
        y.ForEach([&](int64_t n, int64_t c, int64_t s) {
          const double want = function.act(x.At(n, c, s));
          ExpectNear(y.At(n, c, s), want, blocks, std::abs(want));
        });
        y.ExpectZeroPadding();
      }
    }
  });
}

TEST(PointwiseTest, GradientsOfActivations) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (const Function& function : kFunctions) {
        const Activation activation = function.activation;
        SCOPED_TRACE(
            absl::StrCat(ToText(blocks), " ", static_cast<int>(activation)));
        ChannelTensor saved = Operand(blocks, 1), dx(blocks);
        ChannelTensor dy = Random(blocks, 2);
        if (SavesResult(activation)) {
          Activate(blocks, {activation, kSlope}, saved.data(), saved.data(),
                   InOrder);
        }
        RunActivateGradient(blocks, {activation, kSlope},
                            {dy.data(), saved.data(), dx.data()}, InOrder);
        dx.ForEach([&](int64_t n, int64_t c, int64_t s) {
          const double g = dy.At(n, c, s), at = saved.At(n, c, s);
          ExpectNear(dx.At(n, c, s), g * function.derivative(at), blocks,
                     std::abs(g) * std::max(1.0, std::abs(at)));
        });
        dx.ExpectZeroPadding();
      }
    }
  });
}

TEST(PointwiseTest, GradientPassesWhereResultIsNan) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{1, 16, 1, 16};
    for (Activation activation : {Activation::kRelu, Activation::kRelu6}) {
      ChannelTensor y(blocks), dy = Random(blocks, 1), dx(blocks);
      RunActivateGradient(blocks, {activation},
                          {dy.data(), y.data(), dx.data()}, InOrder);
      EXPECT_EQ(dx.bytes(), dy.bytes());
      // And nothing passes, not even Inf or NaN, where it is zero.
      for (int64_t c = 0; c < 16; ++c) {
        y.Set(0, c, 0, 0);
        dy.Set(0, c, 0, c % 2 == 0 ? kInf : NAN);
      }
      RunActivateGradient(blocks, {activation},
                          {dy.data(), y.data(), dx.data()}, InOrder);
      for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(dx.At(0, c, 0), 0);
    }
  });
}

TEST(PointwiseTest, SumsAndProducts) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      SCOPED_TRACE(ToText(blocks));
      ChannelTensor a = Operand(blocks, 1), b = Random(blocks, 2);
      for (const Function& function : kFunctions) {
        const Activation activation = function.activation;
        ChannelTensor y(blocks);
        Add(blocks, {activation, kSlope}, {a.data(), b.data(), y.data()},
            InOrder);
        y.ForEach([&](int64_t n, int64_t c, int64_t s) {
          const double left = a.At(n, c, s), right = b.At(n, c, s);
          ExpectNear(y.At(n, c, s), function.act(left + right), blocks,
                     1 + std::abs(left) + std::abs(right));
        });
        y.ExpectZeroPadding();
      }
      ChannelTensor y(blocks);
      Multiply(blocks, {a.data(), b.data(), y.data()}, InOrder);
      y.ForEach([&](int64_t n, int64_t c, int64_t s) {
        ExpectNear(y.At(n, c, s), a.At(n, c, s) * b.At(n, c, s), blocks, 0);
      });
      y.ExpectZeroPadding();
    }
  });
}

TEST(PointwiseTest, AccumulatesInPlace) {
  for (const ChannelBlocks& blocks : ManyBlocks()) {
    ChannelTensor a = Random(blocks, 1), b = Random(blocks, 2), y(blocks);
    Add(blocks, {}, {a.data(), b.data(), y.data()}, InOrder);
    Add(blocks, {}, {a.data(), b.data(), a.data()}, OnThreeThreads);
    EXPECT_EQ(a.bytes(), y.bytes()) << ToText(blocks);
  }
}

// Large enough to bypass the caches, if they are aligned.
TEST(PointwiseTest, LargeResultsHaveTheSameBits) {
  ForEachSimdTarget([] {
    for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
      const ChannelBlocks blocks{2, 32, 70000, 16, dtype};
      LargeTensor x(blocks, 0), aligned(blocks, 0), other(blocks, 4);
      const Pointwise op{Activation::kLeakyRelu, kSlope};
      Activate(blocks, op, x.data(), aligned.data(), InOrder);
      Activate(blocks, op, x.data(), other.data(), InOrder);
      EXPECT_TRUE(aligned == other);
      Multiply(blocks, {x.data(), x.data(), aligned.data()}, InOrder);
      EXPECT_FALSE(aligned == other);
      Multiply(blocks, {x.data(), x.data(), other.data()}, InOrder);
      EXPECT_TRUE(aligned == other);
    }
  });
}

}  // namespace
}  // namespace convgrad
