#include "backends/proof/small_problems.h"

#include <random>

#include "backends/proof/way.h"
#include "gtest/gtest.h"
#include "tests/conformance/random_operation.h"

namespace convgrad {
namespace {

ConvOperation Backward(absl::string_view problem) {
  return WholeOperation(*Parse(problem), Direction::kBackward, DataType::kF16,
                        Layout::kNCX);
}

std::vector<std::string> NamesOf(const std::vector<ConvOperation>& operations) {
  std::vector<std::string> names;
  for (const ConvOperation& operation : operations) {
    names.push_back(ToString(operation.problem));
  }
  return names;
}

TEST(SmallProblemsTest, GrowFromFewChannelsAndPositionsToWhatIsAffordable) {
  EXPECT_EQ(
      NamesOf(SmallProblems(Backward("conv2d_n16_c67_o128_i28_k3_s2_p1"))),
      (std::vector<std::string>{"conv2d_n2_c35_o32_i8x8_k3x3_s2x2_p1x1",
                                "conv2d_n2_c67_o128_i8x8_k3x3_s2x2_p1x1",
                                "conv2d_n2_c35_o32_i28x28_k3x3_s2x2_p1x1"}));
}

TEST(SmallProblemsTest, KeepWhatNeverWasLarge) {
  EXPECT_EQ(NamesOf(SmallProblems(Backward("conv1d_n1_c3_o5_i4_k3"))),
            std::vector<std::string>{"conv1d_n1_c3_o5_i4_k3"});
}

TEST(SmallProblemsTest, HaveFewerGroupsOfTheSameKind) {
  EXPECT_EQ(
      NamesOf(SmallProblems(Backward("conv2d_n8_c960_o960_g960_i7_k7_p3")))[0],
      "conv2d_n2_c32_o32_g32_i7x7_k7x7_p3x3");
  EXPECT_EQ(
      NamesOf(SmallProblems(Backward("conv2d_n8_c512_o512_g8_i14_k3_p1")))[0],
      "conv2d_n2_c96_o96_g3_i4x4_k3x3_p1x1");
}

TEST(SmallProblemsTest, OfALinearProblemHaveFewerItems) {
  EXPECT_EQ(
      NamesOf(SmallProblems(Backward("linear_n256_c512_o64"))),
      (std::vector<std::string>{"linear_n2_c32_o32", "linear_n2_c512_o64",
                                "linear_n256_c32_o32", "linear_n64_c512_o64"}));
}

TEST(SmallProblemsTest, AreNoneWhereEvenTheSmallestIsTooLarge) {
  EXPECT_TRUE(SmallProblems(Backward("conv3d_n1_c64_o64_i64_k64_p31")).empty());
}

// A proof of a small problem then proves the operation's way.
TEST(SmallProblemsTest, AreValidSmallerAndOfTheSameWayWhateverTheOperation) {
  std::mt19937 random(1);
  int forms = 0;
  for (int i = 0; i < 2000; ++i) {
    const ConvOperation operation =
        testing_support::RandomOperation(50'000'000, &random);
    for (const ConvOperation& small : SmallProblems(operation)) {
      ++forms;
      ASSERT_TRUE(Validate(small).ok()) << ToString(small);
      EXPECT_LE(small.flops(), operation.flops()) << ToString(operation);
      EXPECT_EQ(WayOf(small, ""), WayOf(operation, "")) << ToString(operation);
    }
  }
  EXPECT_GT(forms, 2000);
}

}  // namespace
}  // namespace convgrad
