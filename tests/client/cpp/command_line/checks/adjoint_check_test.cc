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
    return CheckAdjoint({input_, weight_, grad_output_, output_, grad_input_,
                         grad_weight_, 0x1p-24, false, scale_});
  }

  std::vector<double> input_ = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<double> weight_ = {0, 1, 2, 3};
  std::vector<double> grad_output_ = {1, 1, 1, 1};
  std::vector<double> output_ = {19, 25, 37, 43};
  std::vector<double> grad_input_ = {0, 1, 1, 2, 6, 4, 2, 5, 3};
  std::vector<double> grad_weight_ = {8, 12, 20, 24};
  double scale_ = 124;
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
  AdjointValues values{ones, one, ones, ones, {}, one, 0x1p-8, false, 4096};
  EXPECT_NEAR(CheckAdjoint(values).bound, 4096 * 0x1p-8, 0.1);
  values.independent = true;
  EXPECT_NEAR(CheckAdjoint(values).bound, 10 * 64 * 0x1p-8, 0.1);
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

TEST_F(AdjointCheckTest, FailsWithoutAFiniteBound) {
  scale_ = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(Check().ok());
}

TEST(MaskByOutputTest, SelectsAndNeverMultiplies) {
  const double nan = std::nan(""),
               inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(MaskByOutput({inf, nan, 3, 4, 5}, {0, -1, nan, 2, -0.0}),
            (std::vector<double>{0, 0, 0, 4, 0}));
}

}  // namespace
}  // namespace convgrad
