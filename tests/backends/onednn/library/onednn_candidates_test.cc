// Tests which of the library's implementations with AMX are left out; most CPUs
// have no AMX.
#include "backends/onednn/library/onednn_candidates.h"

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

}  // namespace
}  // namespace convgrad::onednn
