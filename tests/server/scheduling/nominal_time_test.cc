#include "server/scheduling/nominal_time.h"

#include "gtest/gtest.h"
#include "tests/server/scheduling/slow_backend.h"

namespace convgrad {
namespace {

constexpr double kUsual = 25e9;

int64_t Items(absl::string_view problem, double macs_per_second,
              Direction direction = Direction::kBackward) {
  const auto backend = MakeSlow("reference", macs_per_second);
  return ItemsPerSlice(
      *backend,
      WholeOperation(*Parse(problem), direction, DataType::kF32, Layout::kNCX),
      1);
}

TEST(NominalTime, LeavesTheLayersOfANetworkWhole) {
  // The largest operation of ResNet-50, on one thread.
  EXPECT_EQ(Items("conv2d_n16_c3_o64_i224_k7_s2_p3", kUsual), 16);
  EXPECT_EQ(Items("conv2d_n16_c64_o64_i56_k3_p1_relu", kUsual), 16);
  EXPECT_EQ(Items("conv2d_n16_c512_o512_i7_k3_p1", kUsual), 16);
  EXPECT_EQ(Items("conv2d_n16_g32_c32_o32_i112_k3_p1", kUsual), 16);
}

TEST(NominalTime, CutsLongWorkIntoEqualParts) {
  // An item takes 118e6 multiply-adds in each of two passes, so 200 ms have 21
  // items.
  EXPECT_EQ(Items("conv2d_n64_c64_o64_i56_k3_p1", kUsual), 16);
  EXPECT_EQ(Items("conv2d_n63_c64_o64_i56_k3_p1", kUsual), 21);
  EXPECT_EQ(Items("conv2d_n64_c64_o64_i56_k3_p1", kUsual, Direction::kForward),
            32);
}

TEST(NominalTime, AnItemIsTheLeast) {
  EXPECT_EQ(Items("conv2d_n4_c64_o64_i56_k3_p1", 1), 1);
  EXPECT_EQ(Items("conv2d_n0_c64_o64_i56_k3_p1", 1), 1);
}

TEST(NominalTime, NamesThePlansThatAJobNeeds) {
  const auto batches = [](absl::string_view problem, double macs_per_second) {
    const auto backend = MakeSlow("reference", macs_per_second);
    const auto operation = std::make_shared<ConvOperation>(WholeOperation(
        *Parse(problem), Direction::kBackward, DataType::kF32, Layout::kNCX));
    std::vector<int64_t> batches;
    for (const auto& planned : PlannedOperations(*backend, operation, 1)) {
      EXPECT_TRUE(Validate(*AsConvolution(*planned)).ok());
      batches.push_back(planned->batch());
    }
    return batches;
  };
  using Batches = std::vector<int64_t>;
  EXPECT_EQ(batches("conv2d_n16_c64_o64_i56_k3_p1", kUsual), Batches{16});
  EXPECT_EQ(batches("conv2d_n64_c64_o64_i56_k3_p1", kUsual), Batches{16});
  EXPECT_EQ(batches("conv2d_n65_c64_o64_i56_k3_p1", kUsual), (Batches{17, 14}));
}

TEST(NominalTime, CountsBytesWhereThereIsLittleElse) {
  const auto backend = MakeSlow("reference", kUsual);
  const auto time = [&](absl::string_view problem) {
    return NominalTime(*backend,
                       WholeOperation(*Parse(problem), Direction::kForward,
                                      DataType::kF32, Layout::kNCX),
                       1);
  };
  // The operation moves 400 MB each way at some 12 GB/s.
  EXPECT_GT(time("conv2d_n1_c1_o1_i10000_k1"), absl::Milliseconds(60));
  EXPECT_GT(time("conv2d_n1_c1_o1_i1_k1"), absl::ZeroDuration());
}

}  // namespace
}  // namespace convgrad
