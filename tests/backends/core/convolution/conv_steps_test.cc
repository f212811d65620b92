#include "backends/core/convolution/conv_steps.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using Home = StepTensor::Home;

// Returns the steps for every result that the problem has in `direction`.
std::vector<ConvStep> Steps(absl::string_view problem, Direction direction) {
  return StepsOf(WholeOperation(*Parse(problem), direction, DataType::kBF16,
                                Layout::kNXC));
}

bool IsOperand(const StepTensor& tensor, Operand which) {
  return tensor.home == Home::kOperand &&
         tensor.index == static_cast<int>(which);
}

TEST(ConvSteps, AForwardIsOnePassWithItsEpilogue) {
  const auto steps =
      Steps("conv2d_n2_c4_o6_i5_k3_b_res_relu", Direction::kForward);
  ASSERT_EQ(steps.size(), 1);
  const auto& pass = std::get<PassStep>(steps[0]);
  EXPECT_EQ(pass.pass, Pass::kForward);
  EXPECT_TRUE(IsOperand(pass.data, Operand::kInput));
  EXPECT_TRUE(IsOperand(pass.weight, Operand::kWeight));
  EXPECT_EQ(pass.result().home, Home::kResult);
  EXPECT_EQ(&pass.result(), &pass.out);
  EXPECT_EQ(pass.epilogue.bias->descriptor.dims, (Dims{1, 6, 1, 1}));
  EXPECT_TRUE(IsOperand(*pass.epilogue.residual, Operand::kResidual));
  EXPECT_TRUE(pass.epilogue.relu);
}

TEST(ConvSteps, AReluAloneNeedsNoSums) {
  const auto steps = Steps("conv2d_n2_c4_o6_i5_k3_relu", Direction::kForward);
  EXPECT_FALSE(std::get<PassStep>(steps[0]).epilogue.needs_sums());
}

TEST(ConvSteps, ATransposedForwardIsTheBackwardDataOfItsMirror) {
  const auto steps =
      Steps("convtranspose2d_n2_c4_o6_i5_k3", Direction::kForward);
  const auto& pass = std::get<PassStep>(steps.at(0));
  EXPECT_EQ(pass.pass, Pass::kBackwardData);
  EXPECT_TRUE(IsOperand(pass.out, Operand::kInput));
  EXPECT_EQ(&pass.result(), &pass.data);
}

TEST(ConvSteps, ABackwardMasksOnceAndSumsTheBiasLast) {
  const ConvOperation operation =
      WholeOperation(*Parse("conv2d_n2_c4_o6_i5_k3_b_res_relu"),
                     Direction::kBackward, DataType::kBF16, Layout::kNXC);
  const std::vector<ConvStep> steps = StepsOf(operation);
  ASSERT_EQ(steps.size(), 1 + operation.results.size());
  const auto& mask = std::get<MaskStep>(steps.front());
  EXPECT_TRUE(IsOperand(mask.gradient, Operand::kGradOutput));
  EXPECT_TRUE(IsOperand(mask.output, Operand::kOutput));
  int readers = 0;
  for (const ConvStep& step : steps) {
    if (const auto* pass = std::get_if<PassStep>(&step)) {
      EXPECT_EQ(pass->out.home, Home::kMaskedGradient);
      EXPECT_EQ(pass->result().home, Home::kResult);
      ++readers;
    }
    if (const auto* copy = std::get_if<CopyStep>(&step)) {
      EXPECT_EQ(copy->from.home, Home::kMaskedGradient);
      ++readers;
    }
  }
  EXPECT_EQ(readers, std::ssize(operation.results) - 1);
  const auto& sum = std::get<BiasSumStep>(steps.back());
  EXPECT_EQ(sum.gradient.home, Home::kMaskedGradient);
  EXPECT_EQ(sum.bias.descriptor.dims, (Dims{1, 6, 1, 1}));
  EXPECT_TRUE(IsPerChannel(operation.problem, sum.bias));
}

TEST(ConvSteps, WithoutAReluTheGradientIsTheCallers) {
  for (const ConvStep& step :
       Steps("convtranspose1d_n2_c4_o6_i5_k3", Direction::kBackward)) {
    ASSERT_FALSE(std::holds_alternative<MaskStep>(step));
    if (const auto* pass = std::get_if<PassStep>(&step)) {
      EXPECT_TRUE(IsOperand(pass->data, Operand::kGradOutput));
    }
  }
}

}  // namespace
}  // namespace convgrad
