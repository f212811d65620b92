// Compares element-wise kernels with plain loops in double, with every
// instruction set.
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
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Below(double x) { return std::erfc(-x * M_SQRT1_2) / 2; }
double Density(double x) { return std::exp(-x * x / 2) * 0.3989422804014327; }
// PyTorch's tanh form of GELU is x * Sigmoid(Inner(x)).
double Inner(double x) {
  return 1.5957691216057308 * (x + 0.044715 * x * x * x);
}
double Softplus(double x) { return std::log1p(std::exp(x)); }

struct Function {
  Pointwise op;
  double (*act)(double x);
  // The derivative, from the operand or, if the result is saved, from the
  // result.
  double (*derivative)(double saved);
  // The factor by which the function amplifies an intermediate rounding.
  // Null: 1.
  double (*growth)(double x) = nullptr;
};

const Function kFunctions[] = {
    {{Activation::kNone},
     [](double x) { return x; },
     [](double) { return 1.0; }},
    {{Activation::kRelu},
     [](double x) { return x <= 0 ? 0 : x; },
     [](double saved) { return saved <= 0 ? 0.0 : 1.0; }},
    {{Activation::kRelu6},
     [](double x) { return x <= 0  ? 0
                           : x > 6 ? 6
                                   : x; },
     [](double saved) { return saved <= 0 || saved >= 6 ? 0.0 : 1.0; }},
    {{Activation::kLeakyRelu, 0.25f},
     [](double x) { return x > 0 ? x : x / 4; },
     [](double saved) { return saved > 0 ? 1.0 : 0.25; }},
    {{Activation::kSigmoid},
     Sigmoid,
     [](double saved) { return saved * (1 - saved); }},
    {{Activation::kSilu},
     [](double x) { return x * Sigmoid(x); },
     [](double saved) {
       return Sigmoid(saved) * (1 + saved * (1 - Sigmoid(saved)));
     }},
    {{Activation::kTanh},
     [](double x) { return std::tanh(x); },
     [](double saved) { return 1 - saved * saved; }},
    {{Activation::kElu, 0.75f},
     [](double x) { return x <= 0 ? 0.75 * std::expm1(x) : x; },
     [](double saved) { return saved > 0 ? 1 : 0.75 * std::exp(saved); }},
    {{Activation::kGelu},
     [](double x) { return x * Below(x); },
     [](double saved) { return Below(saved) + saved * Density(saved); },
     [](double) { return 1.5; }},
    {{Activation::kGeluTanh},
     [](double x) { return x * Sigmoid(Inner(x)); },
     [](double saved) {
       const double s = Sigmoid(Inner(saved)), t = Sigmoid(-Inner(saved));
       const double slope =
           1.5957691216057308 * (1 + 3 * 0.044715 * saved * saved);
       return s + saved * (s * t * slope);
     },
     [](double x) { return 1 + std::fabs(Inner(x)); }},
    {{Activation::kHardsigmoid},
     [](double x) { return x <= -3  ? 0
                           : x >= 3 ? 1
                                    : x / 6 + 0.5; },
     [](double saved) { return std::fabs(saved) < 3 ? 1 / 6.0 : 0; }},
    {{Activation::kHardswish},
     [](double x) {
       return x * (x <= -3 ? 0 : x >= 3 ? 1 : x / 6 + 0.5);
     },
     [](double saved) {
       return saved <= -3 ? 0 : saved >= 3 ? 1 : saved / 3 + 0.5;
     }},
    {{Activation::kHardtanh, -0.5f, 2},
     [](double x) { return x < -0.5 ? -0.5
                           : x > 2  ? 2
                                    : x; },
     [](double saved) { return saved <= -0.5 || saved >= 2 ? 0.0 : 1.0; }},
    {{Activation::kClamp, -0.5f, 2},
     [](double x) { return x < -0.5 ? -0.5
                           : x > 2  ? 2
                                    : x; },
     [](double saved) { return saved > -0.5 && saved < 2 ? 1.0 : 0.0; }},
    {{Activation::kClamp, -INFINITY, 1},
     [](double x) { return x > 1 ? 1 : x; },
     [](double saved) { return saved < 1 ? 1.0 : 0.0; }},
    {{Activation::kClamp, -0.5f, INFINITY},
     [](double x) { return x < -0.5 ? -0.5 : x; },
     [](double saved) { return saved > -0.5 ? 1.0 : 0.0; }},
    {{Activation::kMish},
     [](double x) { return x * std::tanh(Softplus(x)); },
     [](double saved) {
       const double t = std::tanh(Softplus(saved));
       return t + saved * Sigmoid(saved) * (1 - t * t);
     }},
    {{Activation::kSoftplus, 2, 20},
     [](double x) { return 2 * x > 20 ? x : Softplus(2 * x) / 2; },
     [](double saved) { return 2 * saved > 20 ? 1 : Sigmoid(2 * saved); }},
    {{Activation::kAbs},
     [](double x) { return std::fabs(x); },
     [](double saved) { return saved > 0   ? 1.0
                               : saved < 0 ? -1.0
                                           : 0.0; }},
    {{Activation::kExp},
     [](double x) { return std::exp(x); },
     [](double saved) { return saved; }},
    {{Activation::kSqrt},
     [](double x) { return std::sqrt(x); },
     [](double saved) { return 0.5 / saved; }},
    {{Activation::kRsqrt},
     [](double x) { return 1 / std::sqrt(x); },
     [](double saved) { return -0.5 * saved * saved * saved; }},
    {{Activation::kReciprocal},
     [](double x) { return 1 / x; },
     [](double saved) { return -saved * saved; }},
    {{Activation::kLog},
     [](double x) { return std::log(x); },
     [](double x) { return 1 / x; }},
    {{Activation::kPow, 3.0f},
     [](double x) { return x * x * x; },
     [](double x) { return 3 * x * x; }},
    {{Activation::kPow, 0.5},
     [](double x) { return std::sqrt(x); },
     [](double x) { return 0.5 / std::sqrt(x); }},
    {{Activation::kPow, -0.5},
     [](double x) { return 1 / std::sqrt(x); },
     [](double x) { return -0.5 * std::pow(x, -1.5); }},
    {{Activation::kSin},
     [](double x) { return std::sin(x); },
     [](double x) { return std::cos(x); }},
    {{Activation::kCos},
     [](double x) { return std::cos(x); },
     [](double x) { return -std::sin(x); }},
    {{Activation::kNeg},
     [](double x) { return -x; },
     [](double) { return -1.0; }},
    {{Activation::kShift, 1.25f},
     [](double x) { return x + 1.25; },
     [](double) { return 1.0; }},
    {{Activation::kScale, 1.25f},
     [](double x) { return x * 1.25; },
     [](double) { return 1.25; }},
    {{Activation::kQuotient, 3},
     [](double x) { return x / 3; },
     [](double) { return 1 / 3.0; }}};

// Allows one rounding to the dtype and a few in f32.
void ExpectNear(double got, double want, const ChannelBlocks& blocks,
                double terms) {
  if (want > std::numeric_limits<float>::max()) want = kInf;
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

// Selects two functions for tensors with many parts, which take long to check.
bool IsChecked(const ChannelBlocks& blocks, const Function& function) {
  return blocks.spatial < 900 || function.op.activation == Activation::kSilu ||
         function.op.activation == Activation::kGelu;
}

// Returns numbers with special values in the first channel.
ChannelTensor Operand(const ChannelBlocks& blocks, unsigned seed) {
  ChannelTensor x = Random(blocks, seed, 0.5, 4);
  const double special[] = {0,    6,   NAN,  kInf,  -kInf,
                            -0.0, 100, -100, 1e-11, -0x1p-30};
  if (blocks.size() == 0) return x;
  const int64_t count = std::min(blocks.spatial, std::ssize(special));
  for (int64_t s = 0; s < count; ++s) x.Set(0, 0, s, special[s]);
  return x;
}

TEST(PointwiseTest, Activations) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (const Function& function : kFunctions) {
        if (!IsChecked(blocks, function)) continue;
        const Pointwise op = function.op;
        SCOPED_TRACE(
            absl::StrCat(ToText(blocks), " ", static_cast<int>(op.activation)));
        ChannelTensor x = Operand(blocks, 1), y(blocks);
        Activate(blocks, op, x.data(), y.data(), InOrder);
        y.ForEach([&](int64_t n, int64_t c, int64_t s) {
          const double want = function.act(x.At(n, c, s));
          const double growth =
              function.growth == nullptr ? 1 : function.growth(x.At(n, c, s));
          ExpectNear(y.At(n, c, s), want, blocks, growth * std::abs(want));
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
        if (!IsChecked(blocks, function)) continue;
        const Pointwise op = function.op;
        SCOPED_TRACE(
            absl::StrCat(ToText(blocks), " ", static_cast<int>(op.activation)));
        ChannelTensor saved = Operand(blocks, 1), dx(blocks);
        ChannelTensor dy = Random(blocks, 2);
        if (SavesResult(op.activation)) {
          Activate(blocks, op, saved.data(), saved.data(), InOrder);
        }
        RunActivateGradient(blocks, op, {dy.data(), saved.data(), dx.data()},
                            InOrder);
        dx.ForEach([&](int64_t n, int64_t c, int64_t s) {
          const double g = dy.At(n, c, s), at = saved.At(n, c, s);
          ExpectNear(dx.At(n, c, s), g * function.derivative(at), blocks,
                     std::max(std::abs(g * function.derivative(at)),
                              std::abs(g) * std::max(1.0, std::abs(at))));
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
      // Where the derivative is zero, the gradient is zero even for Inf and
      // NaN.
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

TEST(PointwiseTest, PowersOfLargeAndSmallNumbers) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{1, 16, 1, 16};
    ChannelTensor x(blocks), y(blocks), dy(blocks), dx(blocks);
    for (int64_t c = 0; c < 16; ++c) {
      x.Set(0, c, 0, std::pow(10, 5 * c - 40));
      dy.Set(0, c, 0, 1);
    }
    for (const double exponent : {1 / 3.0, 0.001}) {
      const Pointwise op{Activation::kPow, exponent};
      Activate(blocks, op, x.data(), y.data(), InOrder);
      RunActivateGradient(blocks, op, {dy.data(), x.data(), dx.data()},
                          InOrder);
      for (int64_t c = 0; c < 16; ++c) {
        const double at = x.At(0, c, 0);
        const double power = std::pow(at, exponent);
        const double slope = exponent * std::pow(at, exponent - 1);
        EXPECT_NEAR(y.At(0, c, 0), power, power * 0x1p-23);
        EXPECT_NEAR(dx.At(0, c, 0), slope, slope * 0x1p-22);
      }
    }
  });
}

// Large enough to bypass the caches, if they are aligned.
TEST(PointwiseTest, LargeResultsHaveTheSameBits) {
  ForEachSimdTarget([] {
    for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
      const ChannelBlocks blocks{2, 32, 70000, 16, dtype};
      LargeTensor x(blocks, 0), aligned(blocks, 0), other(blocks, 4);
      const Pointwise op{Activation::kLeakyRelu, 0.25f};
      Activate(blocks, op, x.data(), aligned.data(), InOrder);
      Activate(blocks, op, x.data(), other.data(), InOrder);
      EXPECT_TRUE(aligned == other);
    }
  });
}

}  // namespace
}  // namespace convgrad
