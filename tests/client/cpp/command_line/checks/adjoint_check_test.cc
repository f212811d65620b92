#include "client/cpp/command_line/checks/adjoint_check.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

// The seed example: a 3x3 input of 0..8, a 2x2 filter, and its gradients.
class AdjointCheckTest : public ::testing::Test {
 protected:
  AdjointCheck Check() const {
    return CheckAdjoint(problem_,
                        {input_, weight_, grad_output_, output_, grad_input_,
                         grad_weight_, 0x1p-24, independent_, 0});
  }

  ConvProblem problem_ = *Parse("conv2d_n1_c1_o1_i3_k2");
  std::vector<double> input_ = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<double> weight_ = {0, 1, 2, 3};
  std::vector<double> grad_output_ = {1, 1, 1, 1};
  std::vector<double> output_ = {19, 25, 37, 43};
  std::vector<double> grad_input_ = {0, 1, 1, 2, 6, 4, 2, 5, 3};
  std::vector<double> grad_weight_ = {8, 12, 20, 24};
  bool independent_ = false;
};

TEST_F(AdjointCheckTest, AgreesOnRightGradients) {
  const AdjointCheck check = Check();
  EXPECT_EQ(check.forward, 124);
  EXPECT_EQ(check.grad_input, 124);
  EXPECT_EQ(check.grad_weight, 124);
  EXPECT_TRUE(check.ok());
}

TEST_F(AdjointCheckTest, MeasuresDifferencesByTheForwardOfAbsoluteValues) {
  const AdjointCheck check = Check();
  EXPECT_DOUBLE_EQ(check.bound, (1e-6 + 0x1p-24) * 124);
}

TEST_F(AdjointCheckTest, IsSharperOnIndependentData) {
  const std::vector<double> ones(4096, 1.0), one = {1.0};
  const ConvProblem problem = *Parse("linear_n4096_c1_o1");
  AdjointValues values{ones, one, ones, ones, std::nullopt, one, 0x1p-8};
  EXPECT_NEAR(CheckAdjoint(problem, values).bound, 4096 * 0x1p-8, 0.1);
  values.independent = true;
  EXPECT_NEAR(CheckAdjoint(problem, values).bound, 10 * 64 * 0x1p-8, 0.1);
}

TEST_F(AdjointCheckTest, FailsOnASmallErrorInAnyOfThem) {
  for (auto* values : {&output_, &grad_input_, &grad_weight_}) {
    (*values)[3] += 1e-3;
    EXPECT_FALSE(Check().ok());
    (*values)[3] -= 1e-3;
  }
  EXPECT_TRUE(Check().ok());
}

TEST_F(AdjointCheckTest, FailsOnNanWhereverItIs) {
  for (auto* values : {&output_, &grad_input_, &grad_weight_}) {
    const double right = (*values)[1];
    (*values)[1] = std::nan("");
    EXPECT_FALSE(Check().ok());
    (*values)[1] = std::numeric_limits<double>::infinity();
    EXPECT_FALSE(Check().ok());
    (*values)[1] = right;
  }
}

// Compares the scale with the definition of a transposed problem: each input
// element meets each tap once if the result is inside.
TEST(AdjointScaleTest, CountsTheProductsOfTransposedAndGroupedProblems) {
  for (const char* text :
       {"convtranspose2d_n2_c4_o6_i3x4_k3x2_s2_p1_op1_g2",
        "conv3d_n2_c4_o2_i3_k2_s2_p1_d2_g2", "linear_n3_c5_o7",
        "convtranspose0d_n2_c6_o4_g2", "conv1d_n1_c2_o2_i9_k3_pb2_pe0"}) {
    const auto parsed = Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const ConvProblem& problem = *parsed;
    const auto ones = [](const Dims& dims) {
      double count = 1;
      for (int64_t extent : dims) count *= static_cast<double>(extent);
      return std::vector<double>(static_cast<size_t>(count), -1.0);
    };
    const auto input = ones(InputDims(problem));
    const auto weight = ones(WeightDims(problem));
    const auto grad_output = ones(OutputDims(problem));
    // Counts pairs (input position, tap) whose output exists, per axis.
    double pairs = 1;
    for (const SpatialAxis& axis : problem.axes) {
      const int64_t from = problem.transposed ? axis.in : axis.out;
      const int64_t to = problem.transposed ? axis.out : axis.in;
      int64_t inside = 0;
      for (int64_t i = 0; i < from; ++i) {
        for (int64_t k = 0; k < axis.kernel; ++k) {
          const int64_t at =
              i * axis.stride - axis.pad_begin + k * axis.dilation;
          inside += at >= 0 && at < to;
        }
      }
      pairs *= static_cast<double>(inside);
    }
    const int64_t channels = problem.batch * problem.in_channels *
                             problem.out_channels / problem.groups;
    EXPECT_DOUBLE_EQ(AdjointScale(problem, {input, weight, grad_output}),
                     pairs * static_cast<double>(channels))
        << text;
  }
}

TEST(AdjointScaleTest, EstimatesLargeProblemsFromSomeOutputs) {
  const ConvProblem problem = *Parse("conv2d_n2_c256_o128_i20_k3");
  const std::vector<double> input(2 * 256 * 400, 1.0);
  const std::vector<double> weight(128 * 256 * 9, 1.0);
  const std::vector<double> grad_output(2 * 128 * 324, 1.0);
  const double exact = 2.0 * 128 * 324 * 256 * 9;
  EXPECT_NEAR(AdjointScale(problem, {input, weight, grad_output}), exact,
              exact * 1e-9);
}

TEST(MaskByOutputTest, SelectsAndNeverMultiplies) {
  const double nan = std::nan(""),
               inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(MaskByOutput({inf, nan, 3, 4, 5}, {0, -1, nan, 2, -0.0}),
            (std::vector<double>{0, 0, 0, 4, 0}));
}

}  // namespace
}  // namespace convgrad
