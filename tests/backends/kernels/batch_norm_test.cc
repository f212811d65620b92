// batch_norm's kernels against plain loops in double, with every instruction
// set.
#include "backends/kernels/batch_norm.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/channel_tensors.h"
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
      RunForward(e.norm, {.x = e.x.data(), .relu = true, .y = y.data()},
                 InOrder);
      y.ForEach([&](int64_t n, int64_t c, int64_t s) {
        ASSERT_EQ(std::isnan(y.At(n, c, s)), c == 1 || c == 3) << c;
      });
    }
  });
}

void ExpectForward(const ChannelBlocks& blocks, bool with_addend, bool relu) {
  SCOPED_TRACE(absl::StrCat(ToText(blocks), with_addend ? " addend" : "",
                            relu ? " relu" : ""));
  Example e(blocks, 100);
  ChannelTensor y(blocks);
  RunForward(e.norm,
             {.x = e.x.data(),
              .addend = with_addend ? e.addend.data() : nullptr,
              .relu = relu,
              .y = y.data()},
             InOrder);
  y.ForEach([&](int64_t n, int64_t c, int64_t s) {
    const double scaled = e.Xhat(n, c, s) * e.gamma[c];
    const double addend = with_addend ? e.addend.At(n, c, s) : 0;
    const double sum = scaled + e.beta[c] + addend;
    const double want = relu && sum < 0 ? 0 : sum;
    const double terms =
        std::abs(scaled) + std::abs(e.beta[c]) + std::abs(addend);
    ASSERT_NEAR(y.At(n, c, s), want, Tolerance(blocks.dtype, want, terms));
  });
  y.ExpectZeroPadding();
}

TEST(BatchNormTest, ForwardWithAddendAndRelu) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (bool with_addend : {false, true}) {
        for (bool relu : {false, true}) {
          ExpectForward(blocks, with_addend, relu);
        }
      }
    }
  });
}

// Which gradients, of which forward.
struct GradientCase {
  bool training, relu, addend;
};

void ExpectGradients(const ChannelBlocks& blocks, const GradientCase& kind) {
  SCOPED_TRACE(absl::StrCat(ToText(blocks), " training ", kind.training,
                            " relu ", kind.relu, " addend ", kind.addend));
  Example e(blocks);
  e.norm.training = kind.training;
  ChannelTensor y = Random(blocks, 4);
  ChannelTensor dx(blocks), d_addend(blocks);
  const BatchNormBackward tensors{
      .dy = e.dy.data(),
      .x = e.x.data(),
      .y = kind.relu ? y.data() : nullptr,
      .dx = dx.data(),
      .d_addend = kind.addend ? d_addend.data() : nullptr};
  const BatchNormSums sums{e.sum_dy_xhat.data(), e.sum_dy.data()};
  RunGradientSums(e.norm, tensors, InOrder, sums);

  const auto masked = [&](int64_t n, int64_t c, int64_t s) {
    return kind.relu && y.At(n, c, s) <= 0 ? 0 : e.dy.At(n, c, s);
  };
  std::vector<double> sum_dy(blocks.padded_channels());
  std::vector<double> sum_dy_xhat(blocks.padded_channels());
  dx.ForEach([&](int64_t n, int64_t c, int64_t s) {
    sum_dy[c] += masked(n, c, s);
    sum_dy_xhat[c] += masked(n, c, s) * e.Xhat(n, c, s);
  });
  for (int64_t c = 0; c < blocks.padded_channels(); ++c) {
    ASSERT_NEAR(e.sum_dy[c], sum_dy[c], 1e-10) << c;
    ASSERT_NEAR(e.sum_dy_xhat[c], sum_dy_xhat[c], 1e-10) << c;
  }

  RunGradientInput(e.norm, tensors, sums, InOrder);
  const auto count = static_cast<double>(blocks.batch * blocks.spatial);
  dx.ForEach([&](int64_t n, int64_t c, int64_t s) {
    const double dy = masked(n, c, s);
    const double scale = e.gamma[c] * e.InverseDeviation(c);
    const double by_mean = kind.training ? sum_dy[c] / count : 0;
    const double by_variance =
        kind.training ? e.Xhat(n, c, s) * sum_dy_xhat[c] / count : 0;
    const double want = scale * (dy - by_mean - by_variance);
    const double terms =
        scale * (std::abs(dy) + std::abs(by_mean) + std::abs(by_variance));
    ASSERT_NEAR(dx.At(n, c, s), want, Tolerance(blocks.dtype, want, terms));
    if (kind.addend) {
      ASSERT_EQ(d_addend.At(n, c, s), dy);
    }
  });
  dx.ExpectZeroPadding();
  if (kind.addend) d_addend.ExpectZeroPadding();
}

TEST(BatchNormTest, Gradients) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      for (int bits = 0; bits < 8; ++bits) {
        ExpectGradients(blocks,
                        {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
      }
    }
  });
}

TEST(BatchNormTest, GradientPassesWhereResultIsNan) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{1, 3, 4, 8};
    Example e(blocks);
    ChannelTensor y = Random(blocks, 4);
    y.Set(0, 1, 2, NAN);
    e.dy.Set(0, 1, 2, 5);
    // What the mask blocks doesn't count, whatever it is.
    y.Set(0, 2, 1, 0);
    e.dy.Set(0, 2, 1, NAN);
    ChannelTensor dx(blocks), d_addend(blocks);
    const BatchNormBackward tensors{.dy = e.dy.data(),
                                    .x = e.x.data(),
                                    .y = y.data(),
                                    .dx = dx.data(),
                                    .d_addend = d_addend.data()};
    const BatchNormSums sums{e.sum_dy_xhat.data(), e.sum_dy.data()};
    RunGradientSums(e.norm, tensors, InOrder, sums);
    RunGradientInput(e.norm, tensors, sums, InOrder);
    EXPECT_EQ(d_addend.At(0, 1, 2), 5);
    EXPECT_EQ(d_addend.At(0, 2, 1), 0);
    EXPECT_TRUE(std::isfinite(e.sum_dy[2]));
    EXPECT_TRUE(std::isfinite(dx.At(0, 2, 1)));
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
      RunForward(e.norm, {.x = e.x.data(), .relu = true, .y = y.data()}, team);
      const BatchNormBackward tensors{
          .dy = e.dy.data(), .x = e.x.data(), .y = y.data(), .dx = dx.data()};
      const BatchNormSums sums{e.sum_dy_xhat.data(), e.sum_dy.data()};
      RunGradientSums(e.norm, tensors, team, sums);
      RunGradientInput(e.norm, tensors, sums, team);
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
                         {.dy = x.data(),
                          .x = y.data(),
                          .y = y.data(),
                          .dx = result->data()},
                         {dy_xhat.data(), dy.data()}, InOrder);
      }
      EXPECT_TRUE(dx == other_dx);
      EXPECT_FALSE(dx == x);
    }
  });
}

}  // namespace
}  // namespace convgrad
