// Compares batch_norm's gradients with plain loops in double, with every
// instruction set.
#include <cmath>
#include <vector>

#include "backends/kernels/operators/batch_norm.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/batch_norm_example.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

// The forward, and the gradients to compute.
struct GradientCase {
  bool training;
  Activation activation;
  // Whether there is an addend, and whether dy has one part or two; only with
  // kRelu.
  bool addend = false;
  bool two_parts = false;
};

// The kernels' gradients of one forward.
struct Gradients {
  Gradients(Example& e, const GradientCase& kind)
      : y(e.x.blocks()),
        more(Random(e.x.blocks(), 5)),
        masked(e.x.blocks()),
        dx(e.x.blocks()) {
    e.norm.training = kind.training;
    RunForward(e.norm,
               {.x = e.x.data(),
                .addend = kind.addend ? e.addend.data() : nullptr,
                .activation = kind.activation,
                .y = y.data()},
               InOrder);
    BatchNormGradientSums first{.dy = e.dy.data(), .x = e.x.data()};
    BatchNormBackward second{
        .dy = e.dy.data(), .x = e.x.data(), .dx = dx.data()};
    if (kind.addend) {
      first.y = y.data();
      first.more_dy = kind.two_parts ? more.data() : nullptr;
      first.masked_dy = masked.data();
      second.dy = masked.data();
    } else {
      first.activation = second.activation = kind.activation;
    }
    const BatchNormSums sums{e.sum_dy_xhat.data(), e.sum_dy.data()};
    RunGradientSums(e.norm, first, InOrder, sums);
    RunGradientInput(e.norm, second, sums, InOrder);
  }

  ChannelTensor y, more, masked, dx;
};

// Returns dy after the activation's mask. The mask depends on the operand,
// because the forward's result may be rounded up to 6.
double MaskedDy(const Example& e, const Gradients& found,
                const GradientCase& kind, int64_t n, int64_t c, int64_t s) {
  double dy = e.dy.At(n, c, s);
  if (kind.two_parts) dy = found.masked.At(n, c, s);
  if (kind.activation == Activation::kNone) return dy;
  const double before = e.Xhat(n, c, s) * e.gamma[c] + e.beta[c] +
                        (kind.addend ? e.addend.At(n, c, s) : 0);
  if (before <= 0) return 0;
  return kind.activation == Activation::kRelu6 && before >= 6 ? 0 : dy;
}

void ExpectMasked(const Example& e, const Gradients& found,
                  const GradientCase& kind) {
  found.masked.ForEach([&](int64_t n, int64_t c, int64_t s) {
    const double dy = e.dy.At(n, c, s);
    const double sum = kind.two_parts ? dy + found.more.At(n, c, s) : dy;
    const double want = found.y.At(n, c, s) <= 0 ? 0 : sum;
    ASSERT_NEAR(found.masked.At(n, c, s), want,
                UnitRoundoff(e.x.blocks().dtype) * std::abs(want));
  });
  found.masked.ExpectZeroPadding();
}

void ExpectGradients(const ChannelBlocks& blocks, const GradientCase& kind) {
  SCOPED_TRACE(absl::StrCat(ToText(blocks), " training ", kind.training,
                            " activation ", static_cast<int>(kind.activation),
                            " addend ", kind.addend, " two ", kind.two_parts));
  Example e(blocks);
  const Gradients found(e, kind);
  if (kind.addend) ExpectMasked(e, found, kind);
  const auto masked = [&](int64_t n, int64_t c, int64_t s) {
    return MaskedDy(e, found, kind, n, c, s);
  };
  std::vector<double> sum_dy(blocks.padded_channels());
  std::vector<double> sum_dy_xhat(blocks.padded_channels());
  found.dx.ForEach([&](int64_t n, int64_t c, int64_t s) {
    sum_dy[c] += masked(n, c, s);
    sum_dy_xhat[c] += masked(n, c, s) * e.Xhat(n, c, s);
  });
  for (int64_t c = 0; c < blocks.padded_channels(); ++c) {
    ASSERT_NEAR(e.sum_dy[c], sum_dy[c], 1e-10) << c;
    ASSERT_NEAR(e.sum_dy_xhat[c], sum_dy_xhat[c], 1e-10) << c;
  }
  const auto count = static_cast<double>(blocks.batch * blocks.spatial);
  found.dx.ForEach([&](int64_t n, int64_t c, int64_t s) {
    const double dy = masked(n, c, s);
    const double scale = e.gamma[c] * e.InverseDeviation(c);
    const double by_mean = kind.training ? sum_dy[c] / count : 0;
    const double by_variance =
        kind.training ? e.Xhat(n, c, s) * sum_dy_xhat[c] / count : 0;
    const double want = scale * (dy - by_mean - by_variance);
    const double terms =
        scale * (std::abs(dy) + std::abs(by_mean) + std::abs(by_variance));
    ASSERT_NEAR(found.dx.At(n, c, s), want,
                Tolerance(blocks.dtype, want, terms));
  });
  found.dx.ExpectZeroPadding();
}

TEST(BatchNormTest, Gradients) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (bool training : {false, true}) {
        for (Activation activation :
             {Activation::kNone, Activation::kRelu, Activation::kRelu6}) {
          ExpectGradients(blocks, {training, activation});
        }
        for (bool two_parts : {false, true}) {
          ExpectGradients(blocks,
                          {training, Activation::kRelu, true, two_parts});
        }
      }
    }
  });
}

// Without epsilon, the gradient of x * 2^90 is exactly that of x, times 2^-90.
TEST(BatchNormTest, GradientsOfLargeNumbersKeepTheirDigits) {
  ForEachSimdTarget([] {
    for (const DataType dtype : {DataType::kF32, DataType::kBF16}) {
      const ChannelBlocks blocks{2, 3, 50, 8, dtype};
      Example e(blocks), large(blocks);
      e.x.ForEach([&](int64_t n, int64_t c, int64_t s) {
        large.x.Set(n, c, s, e.x.At(n, c, s) * 0x1p90);
      });
      large.Measure();
      e.norm.epsilon = large.norm.epsilon = 0;
      const Gradients expected(e, {true, Activation::kRelu});
      const Gradients found(large, {true, Activation::kRelu});
      found.dx.ForEach([&](int64_t n, int64_t c, int64_t s) {
        ASSERT_EQ(found.dx.At(n, c, s) * 0x1p90, expected.dx.At(n, c, s));
      });
    }
  });
}

TEST(BatchNormTest, GradientPassesWhereOperandIsNan) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{1, 3, 4, 8};
    Example e(blocks);
    e.x.Set(0, 1, 2, NAN);
    // Masked elements have no effect, whatever their values are.
    e.x.Set(0, 2, 1, -50);
    e.dy.Set(0, 2, 1, NAN);
    const Gradients found(e, {true, Activation::kRelu6});
    EXPECT_TRUE(std::isnan(found.dx.At(0, 1, 2)));
    EXPECT_TRUE(std::isfinite(e.sum_dy[2]));
    EXPECT_TRUE(std::isfinite(found.dx.At(0, 2, 1)));
  });
}

TEST(BatchNormTest, GradientPassesWhereResultIsNan) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{1, 3, 4, 8};
    Example e(blocks);
    e.addend.Set(0, 1, 2, NAN);
    e.dy.Set(0, 1, 2, 5);
    e.addend.Set(0, 2, 1, -50);
    e.dy.Set(0, 2, 1, NAN);
    const Gradients found(e, {true, Activation::kRelu, true});
    EXPECT_EQ(found.masked.At(0, 1, 2), 5);
    EXPECT_EQ(found.masked.At(0, 2, 1), 0);
    EXPECT_TRUE(std::isfinite(e.sum_dy[2]));
    EXPECT_TRUE(std::isfinite(found.dx.At(0, 2, 1)));
  });
}

}  // namespace
}  // namespace convgrad
