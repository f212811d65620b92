// Compares batch_norm's kernels with plain loops in double, with every
// instruction set.
#include "backends/kernels/operators/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/batch_norm_example.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

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
