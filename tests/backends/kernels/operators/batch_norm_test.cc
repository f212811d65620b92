// batch_norm's kernels against plain loops in double, with every instruction
// set.
#include "backends/kernels/operators/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A batch_norm with its operands, scratch, and moments that it owns.
struct Example {
  explicit Example(const ChannelBlocks& blocks, double center = 0.5)
      : x(Random(blocks, 1, center, 2)),
        addend(Random(blocks, 2)),
        dy(Random(blocks, 3)),
        mean(blocks.padded_channels()),
        variance(blocks.padded_channels()),
        sum_dy_xhat(blocks.padded_channels(), NAN),
        sum_dy(blocks.padded_channels(), NAN),
        scratch(BatchNormScratch(blocks), NAN) {
    for (int64_t c = 0; c < blocks.channels; ++c) {
      gamma.push_back(static_cast<float>(1 + c % 3));
      beta.push_back(static_cast<float>(c % 5 - 2));
    }
    norm = {.blocks = blocks,
            .gamma = gamma.data(),
            .beta = beta.data(),
            .mean = mean.data(),
            .variance = variance.data(),
            .scratch = scratch.data()};
    Measure();
  }

  // The moments by plain loops.
  void Measure() {
    const ChannelBlocks& blocks = x.blocks();
    const auto count = static_cast<double>(blocks.batch * blocks.spatial);
    for (double& value : mean) value = 0;
    for (double& value : variance) value = 0;
    x.ForEach([&](int64_t n, int64_t c, int64_t s) {
      mean[c] += x.At(n, c, s) / count;
    });
    x.ForEach([&](int64_t n, int64_t c, int64_t s) {
      variance[c] += std::pow(x.At(n, c, s) - mean[c], 2) / count;
    });
  }

  double InverseDeviation(int64_t c) const {
    return 1 / std::sqrt(variance[c] + norm.epsilon);
  }
  double Xhat(int64_t n, int64_t c, int64_t s) const {
    return (x.At(n, c, s) - mean[c]) * InverseDeviation(c);
  }

  ChannelTensor x, addend, dy;
  std::vector<double> mean, variance, sum_dy_xhat, sum_dy, scratch;
  std::vector<float> gamma, beta;
  BatchNorm norm;
};

// Of one rounding to the dtype and a few in f32 of terms of this size.
double Tolerance(DataType dtype, double result, double terms) {
  return UnitRoundoff(dtype) * std::abs(result) +
         4 * UnitRoundoff(DataType::kF32) * terms;
}

TEST(BatchNormTest, MomentsAreExactToDouble) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (double center : {0.0, 1e6}) {
        SCOPED_TRACE(ToText(blocks));
        Example e(blocks, center);
        std::vector<double> mean(blocks.padded_channels(), NAN);
        std::vector<double> variance(blocks.padded_channels(), NAN);
        BatchNormStatistics(blocks, e.x.data(), e.scratch.data(), InOrder,
                            {mean.data(), variance.data()});
        for (int64_t c = 0; c < blocks.padded_channels(); ++c) {
          ASSERT_NEAR(mean[c], e.mean[c], 1e-12 * (1 + center)) << c;
          ASSERT_NEAR(variance[c], e.variance[c], 1e-9) << c;
        }
      }
    }
  });
}

TEST(BatchNormTest, FoldsIntoAScaleAndAShift) {
  const ChannelBlocks blocks{1, 3, 1, 3};
  const std::vector<double> mean = {1, -2, 0.5}, variance = {3, 0, 8};
  const std::vector<float> gamma = {2, 3, -1}, beta = {1, 0, 4};
  const std::vector<float> bias = {1, 1, 0.5};
  BatchNorm norm;
  norm.blocks = blocks;
  norm.epsilon = 1;
  norm.mean = mean.data();
  norm.variance = variance.data();
  norm.training = false;
  std::vector<float> scale(3), shift(3);
  FoldNorm(norm, nullptr, scale.data(), shift.data());
  EXPECT_EQ(scale, (std::vector<float>{0.5, 1, 1.0F / 3}));
  EXPECT_EQ(shift, (std::vector<float>{-0.5, 2, -0.5F / 3}));
  norm.gamma = gamma.data();
  norm.beta = beta.data();
  FoldNorm(norm, bias.data(), scale.data(), shift.data());
  EXPECT_EQ(scale, (std::vector<float>{1, 3, -1.0F / 3}));
  EXPECT_EQ(shift, (std::vector<float>{1, 9, 4}));
}

TEST(BatchNormTest, ConstantChannelHasNoVariance) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{2, 5, 50, 8};
    ChannelTensor x = Random(blocks, 1, 1e6 / 3, 0);
    std::vector<double> mean(8), variance(8);
    std::vector<double> scratch(BatchNormScratch(blocks));
    BatchNormStatistics(blocks, x.data(), scratch.data(), InOrder,
                        {mean.data(), variance.data()});
    for (int64_t c = 0; c < 5; ++c) {
      EXPECT_EQ(mean[c], x.At(0, c, 0));
      EXPECT_EQ(variance[c], 0);
    }
  });
}

TEST(BatchNormTest, NonfiniteStaysInItsChannel) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      if (blocks.channels < 5 || blocks.size() == 0) continue;
      SCOPED_TRACE(ToText(blocks));
      Example e(blocks);
      e.x.Set(0, 1, 0, kInf);
      e.x.Set(blocks.batch - 1, 3, blocks.spatial - 1, NAN);
      BatchNormStatistics(blocks, e.x.data(), e.scratch.data(), InOrder,
                          {e.mean.data(), e.variance.data()});
      EXPECT_EQ(e.mean[1], kInf);
      ChannelTensor y(blocks);
      RunForward(
          e.norm,
          {.x = e.x.data(), .activation = Activation::kRelu, .y = y.data()},
          InOrder);
      y.ForEach([&](int64_t n, int64_t c, int64_t s) {
        ASSERT_EQ(std::isnan(y.At(n, c, s)), c == 1 || c == 3) << c;
      });
    }
  });
}

double Rectified(Activation activation, double x) {
  if (activation == Activation::kNone) return x;
  return std::clamp(x, 0.0, activation == Activation::kRelu ? kInf : 6.0);
}

void ExpectForward(const ChannelBlocks& blocks, bool with_addend,
                   Activation activation) {
  SCOPED_TRACE(absl::StrCat(ToText(blocks), with_addend ? " addend" : "",
                            " activation ", static_cast<int>(activation)));
  Example e(blocks, 100);
  ChannelTensor y(blocks);
  RunForward(e.norm,
             {.x = e.x.data(),
              .addend = with_addend ? e.addend.data() : nullptr,
              .activation = activation,
              .y = y.data()},
             InOrder);
  y.ForEach([&](int64_t n, int64_t c, int64_t s) {
    const double scaled = e.Xhat(n, c, s) * e.gamma[c];
    const double addend = with_addend ? e.addend.At(n, c, s) : 0;
    const double sum = scaled + e.beta[c] + addend;
    const double want = Rectified(activation, sum);
    const double terms =
        std::abs(scaled) + std::abs(e.beta[c]) + std::abs(addend);
    ASSERT_NEAR(y.At(n, c, s), want, Tolerance(blocks.dtype, want, terms));
  });
  y.ExpectZeroPadding();
}

TEST(BatchNormTest, ForwardWithAddendAndActivation) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (bool with_addend : {false, true}) {
        for (Activation activation :
             {Activation::kNone, Activation::kRelu, Activation::kRelu6}) {
          ExpectForward(blocks, with_addend, activation);
        }
      }
    }
  });
}

// Which gradients, of which forward.
struct GradientCase {
  bool training;
  Activation activation;
  // With an addend, and dy in one part or two; only with kRelu.
  bool addend = false;
  bool two_parts = false;
};

// The gradients of one forward, by the kernels.
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

// What the activation lets through of dy. The forward's rounded result may have
// reached 6 where its own operand hadn't, so that the operand decides.
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

TEST(BatchNormTest, GradientPassesWhereOperandIsNan) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{1, 3, 4, 8};
    Example e(blocks);
    e.x.Set(0, 1, 2, NAN);
    // What the mask blocks doesn't count, whatever it is.
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

TEST(BatchNormTest, SameBitsHoweverPartsRun) {
  for (const ChannelBlocks& blocks : ManyBlocks()) {
    SCOPED_TRACE(ToText(blocks));
    std::optional<ChannelTensor> first;
    for (auto* team : {InOrder, Backwards, OnThreeThreads}) {
      Example e(blocks);
      BatchNormStatistics(blocks, e.x.data(), e.scratch.data(), team,
                          {e.mean.data(), e.variance.data()});
      ChannelTensor y(blocks), dx(blocks);
      RunForward(
          e.norm,
          {.x = e.x.data(), .activation = Activation::kRelu, .y = y.data()},
          team);
      const BatchNormSums sums{e.sum_dy_xhat.data(), e.sum_dy.data()};
      RunGradientSums(
          e.norm,
          {.dy = e.dy.data(), .x = e.x.data(), .activation = Activation::kRelu},
          team, sums);
      RunGradientInput(e.norm,
                       {.dy = e.dy.data(),
                        .x = e.x.data(),
                        .activation = Activation::kRelu,
                        .dx = dx.data()},
                       sums, team);
      if (!first) first = dx;
      EXPECT_EQ(first->bytes(), dx.bytes());
    }
  }
}

TEST(BatchNormTest, ResultsInPlaceOfOperands) {
  for (const ChannelBlocks& blocks : ManyBlocks()) {
    SCOPED_TRACE(ToText(blocks));
    Example e(blocks);
    ChannelTensor y(blocks);
    RunForward(e.norm,
               {.x = e.x.data(), .addend = e.addend.data(), .y = y.data()},
               InOrder);
    RunForward(
        e.norm,
        {.x = e.x.data(), .addend = e.addend.data(), .y = e.addend.data()},
        InOrder);
    EXPECT_EQ(e.addend.bytes(), y.bytes());
  }
}

// Large enough to bypass the caches, if they are aligned.
TEST(BatchNormTest, LargeResultsHaveTheSameBits) {
  ForEachSimdTarget([] {
    for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
      const ChannelBlocks blocks{2, 32, 70000, 16, dtype};
      const std::vector<double> mean(32, 30), variance(32, 300);
      std::vector<double> scratch(BatchNormScratch(blocks)), dy_xhat(32, 1e7);
      std::vector<double> dy(32, 1e6);
      const BatchNorm norm{.blocks = blocks,
                           .mean = mean.data(),
                           .variance = variance.data(),
                           .scratch = scratch.data()};
      LargeTensor x(blocks, 0), y(blocks, 0), other_y(blocks, 4);
      LargeTensor dx(blocks, 0), other_dx(blocks, 4);
      for (LargeTensor* result : {&y, &other_y}) {
        RunForward(norm, {.x = x.data(), .y = result->data()}, InOrder);
      }
      EXPECT_TRUE(y == other_y);
      EXPECT_FALSE(y == x);
      for (LargeTensor* result : {&dx, &other_dx}) {
        RunGradientInput(norm,
                         {.dy = x.data(), .x = y.data(), .dx = result->data()},
                         {dy_xhat.data(), dy.data()}, InOrder);
      }
      EXPECT_TRUE(dx == other_dx);
      EXPECT_FALSE(dx == x);
    }
  });
}

}  // namespace
}  // namespace convgrad
