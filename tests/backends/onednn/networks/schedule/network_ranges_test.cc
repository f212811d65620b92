// Tests the bounds of a network's values, which the checks of fused
// convolutions use.
#include "backends/onednn/networks/schedule/network_ranges.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A network with the inputs x and z, of one image of two channels and one
// position, and the parameters w [2, 2, 1], b, m and v [2], in this order.
class RangesTest : public testing::Test {
 protected:
  // Returns the range of `value`; -1 if there is no rule for it. The steps may
  // use the inputs and parameters above.
  double RangeOf(const std::string& steps, const std::string& value) {
    // Declares only parameters that a step uses, because others are invalid.
    const std::string declared =
        "input x\ninput z\nparameter w [2, 2, 1]\nparameter b [2]\n"
        "parameter m [2] fixed\nparameter v [2] fixed\n";
    const auto operation = OperationOf(
        declared + steps +
            "all1 = conv(x, w, b)\nall2 = batch_norm(z, none, none, m, v)\n"
            "output " +
            value + "\noutput all1\noutput all2\n",
        {{1, 2, 1}, {1, 2, 1}});
    NetworkBuilder builder(*operation, {}, false);
    const BufferId range = onednn::RangeOf(value, &builder);
    // A second call appends no step.
    const size_t steps_before = builder.steps().size();
    EXPECT_EQ(onednn::RangeOf(value, &builder), range);
    EXPECT_EQ(builder.steps().size(), steps_before);
    if (range == kNoBuffer) return -1;
    BuffersOf buffers(builder);
    const std::vector<std::vector<float>*> operands = {&x_, &z_, &w_,
                                                       &b_, &m_, &v_};
    for (size_t i = 0; i < operands.size(); ++i) {
      buffers.SetOperand(i, *operands[i]);
    }
    buffers.Run();
    return buffers.Get<double>(range)[0];
  }

  std::vector<float> x_ = {-3, 2}, z_ = {0.25F, -0.5F};
  std::vector<float> w_ = {1, -2, 0.5F, 0.5F}, b_ = {-4, 1};
  std::vector<float> m_ = {1, -1}, v_ = {4, 0.25F};
};

TEST_F(RangesTest, AnInputHasItsLargestMagnitudeButNotLessThanOne) {
  EXPECT_EQ(RangeOf("a = relu(x)\n", "a"), 3);
  EXPECT_EQ(RangeOf("a = relu(z)\n", "a"), 1);
}

TEST_F(RangesTest, AConvolutionHasItsLargestSumOfWeightsAndItsBias) {
  EXPECT_EQ(RangeOf("a = conv(x, w)\n", "a"), 3 * 3);
  EXPECT_EQ(RangeOf("a = conv(x, w, b)\n", "a"), 3 * 3 + 4);
  EXPECT_EQ(RangeOf("a = conv(x, w)\nc = conv(a, w)\n", "c"), 3 * 3 * 3);
}

TEST_F(RangesTest, ABatchNormScalesAndShiftsEachChannel) {
  // Channel 0: (3 + 1) / 2, channel 1: (3 + 1) / 0.5.
  EXPECT_EQ(RangeOf("a = batch_norm(x, none, none, m, v, eps=0)\n", "a"), 8);
  // The factors are parameters as well.
  EXPECT_EQ(RangeOf("a = batch_norm(x, b, m, m, v, eps=0)\n", "a"),
            std::max(4.0 * 2 + 1, 1 * 8.0 + 1));
  // A range isn't below 1.
  v_ = {1e6F, 1e6F};
  EXPECT_EQ(RangeOf("a = batch_norm(x, none, none, m, v, eps=0)\n", "a"), 1);
}

TEST_F(RangesTest, SumsAddAndConcatenationsTakeTheLarger) {
  EXPECT_EQ(RangeOf("a = add(x, z)\n", "a"), 4);
  EXPECT_EQ(RangeOf("a = concat(z, x, z)\n", "a"), 3);
}

TEST_F(RangesTest, ARelu6BoundsFiniteValues) {
  const std::string steps = "a = conv(x, w)\nc = relu6(a)\n";
  x_[0] = 1e30F;
  EXPECT_EQ(RangeOf(steps, "c"), 6);
  x_[0] = 1;
  EXPECT_EQ(RangeOf("a = relu6(x)\n", "a"), 2);
  // The sum might overflow in f32, and then be NaN.
  x_[0] = 3e38F;
  EXPECT_GT(RangeOf(steps, "c"), 3e38);
}

TEST_F(RangesTest, ARelu6KeepsNan) {
  x_[0] = kNan;
  EXPECT_TRUE(std::isnan(RangeOf("a = relu6(x)\n", "a")));
  x_[0] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(RangeOf("a = relu6(x)\n", "a")));
}

TEST(Ranges, ABicubicUpsamplingMayDoubleValues) {
  for (const auto& [mode, factor] :
       {std::pair{"bilinear", 1}, {"bicubic", 2}}) {
    const auto operation = OperationOf(
        absl::StrCat("input x\ny = upsample(x, size=[4, 4], mode=", mode,
                     ")\noutput y\n"),
        {{1, 1, 2, 2}});
    NetworkBuilder builder(*operation, {}, false);
    const BufferId range = onednn::RangeOf("y", &builder);
    BuffersOf buffers(builder);
    buffers.SetOperand(0, std::vector<float>{1, -3, 2, 0});
    buffers.Run();
    EXPECT_EQ(buffers.Get<double>(range)[0], 3 * factor);
  }
}

TEST_F(RangesTest, APoolingHasTheRangeOfWhatItReads) {
  EXPECT_EQ(RangeOf("a = max_pool(x, kernel_size=1)\n", "a"), 3);
  EXPECT_EQ(RangeOf("a = avg_pool(x, kernel_size=1)\n", "a"), 3);
}

TEST_F(RangesTest, NothingIsSaidOfOtherSteps) {
  EXPECT_EQ(RangeOf("a = mul(x, z)\n", "a"), -1);
  EXPECT_EQ(RangeOf("a = mul(x, z)\nc = relu(a)\n", "c"), -1);
  EXPECT_EQ(
      RangeOf("a = avg_pool(x, kernel_size=1, divisor_override=1)\n", "a"), -1);
  EXPECT_EQ(RangeOf("a = mul(x, z)\nc = add(x, a)\n", "c"), -1);
}

TEST_F(RangesTest, WhatIsNotFiniteNeverLooksSmall) {
  const auto is_unbounded = [](double range) {
    return std::isnan(range) || std::isinf(range);
  };
  const std::string norm = "a = batch_norm(x, none, none, m, v, eps=0)\n";
  x_[1] = kNan;
  EXPECT_TRUE(is_unbounded(RangeOf("a = conv(x, w, b)\n", "a")));
  EXPECT_TRUE(is_unbounded(RangeOf("a = add(z, x)\n", "a")));
  EXPECT_TRUE(is_unbounded(RangeOf("a = concat(x, z)\n", "a")));
  EXPECT_TRUE(is_unbounded(RangeOf("a = concat(z, x)\n", "a")));
  EXPECT_TRUE(is_unbounded(RangeOf(norm, "a")));
  x_[1] = 2;
  w_[3] = kNan;
  EXPECT_TRUE(is_unbounded(RangeOf("a = conv(x, w)\n", "a")));
  b_[0] = -std::numeric_limits<float>::infinity();
  w_[3] = 0;
  EXPECT_TRUE(is_unbounded(RangeOf("a = conv(x, w, b)\n", "a")));
  v_[0] = -1;
  EXPECT_TRUE(is_unbounded(RangeOf(norm, "a")));
}

}  // namespace
}  // namespace convgrad::onednn
