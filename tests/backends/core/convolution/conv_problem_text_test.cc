#include <random>

#include "backends/core/convolution/conv_problem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/random_problem.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ConvProblemTextTest, WritesOnlyWhatDiffersFromTheDefault) {
  const auto problem = Parse("conv2d_n16_c64_o64_i56_k3_p1_b_relu");
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(ToString(*problem), "conv2d_n16_c64_o64_i56x56_k3x3_p1x1_b64_relu");
}

TEST(ConvProblemTextTest, AsymmetricPadsAreTwoTokens) {
  const auto problem = Parse("conv2d_c2_o3_i8x9_k3x2_pb1x0_pe0x2_s2x1");
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(ToString(*problem), "conv2d_n1_c2_o3_i8x9_k3x2_s2x1_pb1x0_pe0x2");
}

TEST(ConvProblemTextTest, BiasFormsParse) {
  auto bias = [](const char* token) {
    return Parse(std::string("conv1d_n2_c2_o6_i4_k1_") + token)->bias;
  };
  EXPECT_THAT(*bias("b"), ElementsAre(6));
  EXPECT_THAT(*bias("b6"), ElementsAre(6));
  EXPECT_THAT(*bias("b1"), ElementsAre(1));
  EXPECT_THAT(*bias("bscalar"), ElementsAre());
  EXPECT_THAT(*bias("b2x1x4"), ElementsAre(2, 1, 4));
}

TEST(ConvProblemTextTest, BiasPerChannelMayStandBeforeTheChannels) {
  EXPECT_THAT(*Parse("conv1d_b_o6_i4_k1")->bias, ElementsAre(6));
}

TEST(ConvProblemTextTest, LinearHasNoSpatialTokens) {
  const auto problem = Parse("linear_n4_c8_o3_g1_b");
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(ToString(*problem), "linear_n4_c8_o3_b3");
  EXPECT_FALSE(Parse("linear_n4_c8_o3_k3").ok());
}

TEST(ConvProblemTextTest, RefusalsNameTheToken) {
  for (const char* token : {"q3", "k3x3x3", "kx", "n2x2", "k", "i", "s1.5",
                            "pfoo", "y1x2x3", "b2x", "k99999999999999999999"}) {
    const auto problem = Parse(std::string("conv2d_c2_o2_i9_k3_") + token);
    EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(problem.status().message()), HasSubstr(token));
  }
}

TEST(ConvProblemTextTest, RefusesUnknownKindsAndEmptyTokens) {
  for (const char* text :
       {"", "conv", "conv4d_i1", "conv0d", "deconv2d", "linear2d", "conv2d__i3",
        "conv2d_i3_", "convtranspose", "conv2dd_i3"}) {
    EXPECT_EQ(Parse(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(ConvProblemTextTest, ParsedProblemsAreValidated) {
  EXPECT_THAT(std::string(Parse("conv1d_i2_k3").status().message()),
              HasSubstr("problem.kernel[0]"));
}

TEST(ConvProblemTextTest, RandomValidProblemsRoundTrip) {
  std::mt19937 random(20240517);
  for (int i = 0; i < 10000; ++i) {
    const ConvProblem problem = testing_support::RandomProblem(&random);
    ASSERT_TRUE(Validate(problem).ok()) << Validate(problem);
    const auto parsed = Parse(ToString(problem));
    ASSERT_TRUE(parsed.ok()) << ToString(problem) << parsed.status();
    ASSERT_EQ(*parsed, problem) << ToString(problem);
  }
}

TEST(ConvProblemTextTest, GarbledTextIsRefusedOrRoundTrips) {
  std::mt19937 random(3);
  const std::string seed = "convtranspose2d_n2_c4_o6_g2_i5x5_k3x3_p1x1_b6_relu";
  const std::string letters = "_x0123456789abcdegiknoprsty-.";
  for (int i = 0; i < 20000; ++i) {
    std::string text = seed;
    for (int change = 0; change < 3; ++change) {
      text[random() % text.size()] = letters[random() % letters.size()];
    }
    const auto problem = Parse(text);
    if (!problem.ok()) continue;
    ASSERT_EQ(*Parse(ToString(*problem)), *problem) << text;
  }
}

}  // namespace
}  // namespace convgrad
