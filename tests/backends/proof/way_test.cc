#include "backends/proof/way.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

ConvOperation Whole(absl::string_view problem, Direction direction,
                    DataType dtype = DataType::kF16,
                    Layout layout = Layout::kNCX) {
  return WholeOperation(*Parse(problem), direction, dtype, layout);
}

TEST(FamilyOfTest, NamesDtypeResultAddendsAndLayouts) {
  EXPECT_EQ(FamilyOf(Whole("conv2d_n1_c8_o8_i4_k3_b_res", Direction::kForward),
                     Result::kOutput),
            "f16 output with bias and residual in NCX/OIX");
  EXPECT_EQ(FamilyOf(Whole("conv2d_n1_c8_o8_i4_k3_res", Direction::kForward,
                           DataType::kBF16, Layout::kNXC),
                     Result::kOutput),
            "bf16 output with residual in NXC/OIX");
  const ConvOperation backward =
      Whole("convtranspose2d_n1_c8_o8_i4_k3_b", Direction::kBackward);
  EXPECT_EQ(FamilyOf(backward, Result::kGradInput),
            "f16 transposed grad_input in OIX/NCX");
  EXPECT_EQ(FamilyOf(backward, Result::kGradWeight),
            "f16 transposed grad_weight in NCX/OIX");
  EXPECT_EQ(FamilyOf(backward, Result::kGradBias),
            "f16 transposed grad_bias in NCX");
}

TEST(FamilyOfTest, IsThatOfTheResultAlone) {
  const ConvOperation all =
      Whole("conv2d_n1_c8_o8_i4_k3_b_relu", Direction::kBackward);
  ConvOperation one = all;
  one.results = {*all.result(Result::kGradWeight)};
  one.problem.bias.reset();
  DropUnneeded(&one);
  EXPECT_EQ(FamilyOf(all, Result::kGradWeight),
            FamilyOf(one, Result::kGradWeight));
}

TEST(WayOfTest, IsEqualForOtherExtentsAndNoOtherOperation) {
  const auto way = [](absl::string_view problem,
                      DataType dtype = DataType::kF16,
                      Layout layout = Layout::kNCX) {
    return WayOf(Whole(problem, Direction::kForward, dtype, layout), "jit");
  };
  const std::string base = way("conv2d_n2_c16_o32_i8_k3_p1_b");
  EXPECT_EQ(way("conv2d_n9_c64_o16_i30x7_k3_p1_b"), base);
  EXPECT_EQ(way("conv2d_n9_c64_o16_i30x7_k5_s2_b"), base);
  for (const char* other :
       {"conv2d_n2_c16_o32_i8_k3_p1", "conv2d_n2_c17_o32_i8_k3_p1_b",
        "conv2d_n2_c16_o31_i8_k3_p1_b", "conv2d_n2_c16_o32_i8_k3_p1_b_relu",
        "conv2d_n2_c16_o32_i8_k3_p1_b_res", "conv1d_n2_c16_o32_i8_k3_p1_b",
        "conv2d_n2_c16_o32_i8_k3_p1_b1x32x8x1", "conv2d_n2_c32_o32_g2_i8_k3_b",
        "conv2d_n2_c32_o32_g32_i8_k3_b",
        "convtranspose2d_n2_c16_o32_i8_k3_b"}) {
    EXPECT_NE(way(other), base) << other;
  }
  EXPECT_NE(way("conv2d_n2_c16_o32_i8_k3_p1_b", DataType::kBF16), base);
  EXPECT_NE(way("conv2d_n2_c16_o32_i8_k3_p1_b", DataType::kF16, Layout::kNXC),
            base);
  ConvOperation scaled =
      Whole("conv2d_n2_c16_o32_i8_k3_p1_b", Direction::kForward);
  scaled.results[0].scale = 2;
  EXPECT_NE(WayOf(scaled, "jit"), base);
  EXPECT_NE(WayOf(scaled, "other"), WayOf(scaled, "jit"));
}

TEST(WayOfTest, SeparatesDepthwiseChannelsThatFillVectors) {
  const auto way = [](absl::string_view problem) {
    return WayOf(Whole(problem, Direction::kForward), "jit_dw");
  };
  const std::string full = way("conv2d_n1_c32_o32_g32_i8_k3");
  const std::string tail = way("conv2d_n1_c24_o24_g24_i8_k3");
  EXPECT_NE(full, tail);
  EXPECT_EQ(way("conv2d_n1_c96_o96_g96_i8_k3"), full);
  EXPECT_EQ(way("conv2d_n1_c40_o40_g40_i8_k3"), tail);
  EXPECT_EQ(way("conv2d_n1_c8_o8_g8_i8_k3"), tail);
}

TEST(PiecesOfTest, IsWhatEachPieceIsComputedBy) {
  EXPECT_EQ(PiecesOf("batch*2(forward=brgconv:avx512_core/nxc)"),
            "forward=brgconv:avx512_core/nxc");
  EXPECT_EQ(PiecesOf("forward=x8s8s32x(a)"), "forward=x8s8s32x(a)");
  EXPECT_EQ(PiecesOf("sum"), "sum");
}

}  // namespace
}  // namespace convgrad
