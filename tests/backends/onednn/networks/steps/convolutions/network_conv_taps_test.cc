// Tests which convolutions are computed by taps, and how many products that
// takes. Values are compared by the programs conv_taps* of tests/conformance.
#include "backends/onednn/networks/steps/convolutions/network_conv_taps.h"

#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

// A pass of a 3x3 convolution from 64 to 48 channels of an image.
FastPass Pass3x3(int64_t size, int64_t dilation, Pass pass = Pass::kForward) {
  ConvProblem problem;
  problem.batch = 2;
  problem.in_channels = 64;
  problem.out_channels = 48;
  problem.groups = 1;
  problem.axes.assign(2, {.in = size,
                          .kernel = 3,
                          .dilation = dilation,
                          .pad_begin = dilation,
                          .pad_end = dilation,
                          .out = size});
  return {pass, problem,
          TensorLike({2, 64, size, size}, DataType::kF32, Form::kImage, 16),
          TensorLike({2, 48, size, size}, DataType::kF32, Form::kImage, 16)};
}

// Returns whether it is computed by taps, behind few other steps.
bool IsByTaps(const FastPass& pass, bool has_winograd = false) {
  return IsFastByTaps(pass, has_winograd, /*steps_before=*/0);
}

TEST(NetworkConvTapsTest, ComputesWhatMostlySeesPadding) {
  EXPECT_TRUE(IsByTaps(Pass3x3(28, 36)));
  EXPECT_TRUE(IsByTaps(Pass3x3(28, 12)));
  EXPECT_TRUE(IsByTaps(Pass3x3(64, 12)));
  EXPECT_TRUE(IsByTaps(Pass3x3(28, 12), true));
  EXPECT_FALSE(IsByTaps(Pass3x3(64, 12), true));
  EXPECT_FALSE(IsByTaps(Pass3x3(28, 2)));
  EXPECT_FALSE(IsByTaps(Pass3x3(28, 1)));
  EXPECT_FALSE(IsByTaps(Pass3x3(3, 1)));
}

TEST(NetworkConvTapsTest, LeavesWhatItCannotCompute) {
  FastPass pass = Pass3x3(28, 36);
  pass.problem.axes[1].stride = 2;
  EXPECT_FALSE(IsByTaps(pass));
  pass = Pass3x3(28, 36);
  pass.problem.groups = 2;
  EXPECT_FALSE(IsByTaps(pass));
  pass = Pass3x3(28, 36);  // no tap sees all of the image
  pass.problem.axes[0].pad_begin = pass.problem.axes[0].pad_end = 35;
  pass.problem.axes[0].out = 26;
  EXPECT_FALSE(IsByTaps(pass));
  pass = Pass3x3(28, 36);
  pass.x = TensorLike(pass.x.dims, DataType::kBF16, Form::kImage, 16);
  EXPECT_FALSE(IsByTaps(pass));
  pass = Pass3x3(28, 36);
  pass.y = TensorLike(pass.y.dims, DataType::kF32, Form::kImage, kChannelsLast);
  EXPECT_FALSE(IsByTaps(pass));
  pass = Pass3x3(28, 36);  // too many steps
  for (SpatialAxis& axis : pass.problem.axes) {
    axis.kernel = 5;
    axis.dilation = 10;
    axis.pad_begin = axis.pad_end = 20;
  }
  EXPECT_FALSE(IsByTaps(pass));
  pass = Pass3x3(28, 36);  // in a plan of thousands of steps
  EXPECT_FALSE(IsFastByTaps(pass, false, 5000));
  pass = Pass3x3(28, 36);
  pass.problem.in_channels = 16;
  EXPECT_FALSE(IsByTaps(pass));
}

TEST(NetworkConvTapsTest, MultipliesNoPadding) {
  for (const Pass kind :
       {Pass::kForward, Pass::kBackwardData, Pass::kBackwardWeight}) {
    Schedule schedule;
    FastPass pass = Pass3x3(28, 24, kind);
    pass.x.buffer = schedule.AddBuffer(pass.x.blocks.bytes());
    pass.y.buffer = schedule.AddBuffer(pass.y.blocks.bytes());
    pass.weight = schedule.AddBuffer(int64_t{48} * 64 * 9 * 4);
    AddByTaps(pass, "conv", "y", &schedule);
    ASSERT_TRUE(schedule.status().ok());
    double macs = 0;
    for (const Step& step : schedule.steps()) macs += step.macs;
    // Along an axis, the taps see 4, 28 and 4 positions.
    EXPECT_EQ(macs, 2.0 * 64 * 48 * (4 + 28 + 4) * (4 + 28 + 4));
  }
}

}  // namespace
}  // namespace convgrad::onednn
