// Tests which of the library's implementations are left out, by their names:
// most CPUs don't have all of them.
#include "backends/onednn/library/onednn_candidates.h"

#include "backends/onednn/library/onednn_cost_model.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

TEST(OnednnCandidates, FewChannelsAreNotComputedInTiles) {
  ConvProblem problem;
  problem.in_channels = 4;
  EXPECT_TRUE(
      FillsTilesWithNeighbours(Pass::kForward, problem, "jit:avx512_core_amx"));
  EXPECT_FALSE(FillsTilesWithNeighbours(Pass::kForward, problem,
                                        "jit_bf16:avx512_core_bf16"));
  EXPECT_FALSE(FillsTilesWithNeighbours(Pass::kBackwardData, problem,
                                        "jit:avx512_core_amx"));
  problem.in_channels = 5;
  EXPECT_FALSE(
      FillsTilesWithNeighbours(Pass::kForward, problem, "jit:avx512_core_amx"));
}

TEST(OnednnCandidates, WeightGradientsStayWithinTheImagesDepth) {
  const auto is_wrong = [](const char* text, const char* implementation) {
    return MisplacesPlanes(Pass::kBackwardWeight, *Parse(text), implementation);
  };
  const char* const strided = "conv3d_n1_c16_o16_i2x4x4_k5x3x3_s3x1x1_p4x1x1";
  EXPECT_TRUE(is_wrong(strided, "jit:avx512_core"));
  EXPECT_TRUE(is_wrong(strided, "jit:avx2"));
  EXPECT_FALSE(is_wrong(strided, "gemm:jit"));
  EXPECT_FALSE(
      MisplacesPlanes(Pass::kForward, *Parse(strided), "jit:avx512_core"));
  // The kernel fits into the depth of the first image, but not of the second.
  EXPECT_FALSE(is_wrong("conv3d_n1_c16_o16_i3x4x4_k3_p1", "jit_bf16:avx512"));
  const char* const shallow = "conv3d_n1_c16_o16_i2x4x4_k3_p1";
  EXPECT_TRUE(is_wrong(shallow, "jit_bf16:avx512_core_bf16"));
  EXPECT_TRUE(is_wrong(shallow, "jit:avx512_core_amx"));
  EXPECT_TRUE(is_wrong(shallow, "brgconv:avx512_core_amx"));
  EXPECT_FALSE(is_wrong(shallow, "jit:avx512_core"));
  // The first layers of I3D.
  EXPECT_FALSE(
      is_wrong("conv3d_n1_c3_o64_i16x112x112_k7_s2_p3", "jit:avx512_core"));
}

TEST(OnednnCandidates, DataGradientsHaveATapThatSeesTheImage) {
  const auto crashes = [](Pass pass, const char* text,
                          const char* implementation) {
    return CrashesWithoutTaps(pass, *Parse(text), implementation);
  };
  const char* const brgemm = "brgconv:avx512_core_amx";
  const char* const padding = "conv2d_n1_c16_o16_i3x12_k2_d4x1_p1x0";
  EXPECT_TRUE(crashes(Pass::kBackwardData, padding, brgemm));
  EXPECT_FALSE(crashes(Pass::kBackwardData, padding, "jit:avx512_core"));
  EXPECT_FALSE(crashes(Pass::kForward, padding, brgemm));
  // The second tap sees the last row.
  EXPECT_FALSE(crashes(Pass::kBackwardData,
                       "conv2d_n1_c16_o16_i4x12_k2_d4x1_p1x0", brgemm));
}

// Returns the predicted time of the weight gradient of ResNet-50's first layer.
double FirstLayerSeconds(DataType dtype, const char* implementation) {
  PassSpec spec;
  spec.pass = Pass::kBackwardWeight;
  spec.problem = *Parse("conv2d_n16_c3_o64_i224_k7_s2_p3");
  spec.operand_dtype = spec.data.dtype = spec.weight.dtype = spec.out.dtype =
      dtype;
  Candidate candidate;
  candidate.implementation = implementation;
  return PredictSeconds(spec, candidate);
}

TEST(OnednnCandidates, TilesComputeFirstLayersFasterThanGemm) {
  const double gemm = FirstLayerSeconds(DataType::kBF16, "x64:gemm:jit");
  EXPECT_LT(FirstLayerSeconds(DataType::kBF16, "brgconv_bwd_w:avx512_core_amx"),
            gemm);
  // Vectors leave 13 of 16 lanes empty.
  EXPECT_GT(
      FirstLayerSeconds(DataType::kBF16, "brgconv_bwd_w:avx512_core_bf16"),
      gemm);
}

}  // namespace
}  // namespace convgrad::onednn
