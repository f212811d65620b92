// Tests that operations cut into pieces give the same results for every
// partition.
#include <map>
#include <memory>
#include <random>
#include <set>

#include "backends/core/program/conv_backend.h"
#include "backends/onednn/convolutions/onednn_conv_plan.h"
#include "backends/onednn/convolutions/onednn_partitioned_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/checked_run.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/random_operation.h"

namespace convgrad::onednn {
namespace {

using convgrad::testing_support::ExpectExact;
using convgrad::testing_support::IntegerFill;
using convgrad::testing_support::IsExactly;
using convgrad::testing_support::MakeOperation;
using convgrad::testing_support::RandomOperation;
using convgrad::testing_support::RowMajorLayouts;
using convgrad::testing_support::RunChecked;
using testing::ElementsAre;
using testing::IsEmpty;

// Computes everything in pieces.
class CuttingBackend final : public ConvBackend {
 public:
  CuttingBackend(Partition partition, int threads)
      : partition_(partition), threads_(threads) {}

  absl::string_view name() const override { return "cutting"; }
  BackendCapabilities capabilities() const override { return {}; }
  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation, const PlanOptions&) const override {
    // Tensors of f16 test the computation in f32.
    const ComputeOptions options = {threads_, /*native_bf16=*/true};
    return MakePartitionedPlan(
        operation, partition_, options, [&](const ConvOperation& piece) {
          return MakeConvPlan(piece, OneThread(options), /*like=*/"");
        });
  }

 private:
  const Partition partition_;
  const int threads_;
};

ExactOperands Integers(const ConvOperation& operation) {
  ExactOperands operands;
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor) continue;
    const auto i = static_cast<size_t>(which);
    operands[i] = IntegerFill(ElementCount(*tensor), i);
  }
  return operands;
}

// Checks every way to cut `operation`; counts them by axis.
void CheckAll(const ConvOperation& operation, int threads,
              std::map<CutAxis, int>* seen) {
  const ExactOperands operands = Integers(operation);
  for (const Partition& partition : PartitionsOf(operation, threads)) {
    SCOPED_TRACE(ToString(partition) + " " + convgrad::ToString(operation));
    ++(*seen)[partition.axis];
    const auto results =
        RunChecked(CuttingBackend(partition, threads), operation, operands);
    ASSERT_TRUE(results.ok()) << results.status();
    for (size_t i = 0; i < results->size(); ++i) {
      const ResultRequest& request = operation.results[i];
      EXPECT_TRUE(IsExactly({&operation, &request, (*results)[i].data()},
                            ExpectExact(operation, request.which, operands)));
    }
  }
}

TEST(OnednnPartition, EveryPieceIsInItsPlace) {
  std::map<CutAxis, int> seen;
  for (const char* text :
       {"conv2d_n6_c16_o32_i5x4_k3_p1_b", "conv2d_n1_c32_o48_i13x6_k1_b_relu",
        "conv2d_n1_c32_o32_i13x6_k1_s2",
        "conv2d_n1_c48_o48_g48_i9x7_k3_s2_p1_b",
        "conv2d_n1_c48_o48_i6x5_k3_p1_b", "conv1d_n8_c16_o16_i20_k3",
        "conv3d_n4_c16_o32_i4x3x5_k3_p1_b1", "linear_n8_c32_o32_b",
        "convtranspose2d_n4_c16_o16_i4x5_k3_s2_p1_b_relu"}) {
    const auto problem = Parse(text);
    ASSERT_TRUE(problem.ok()) << text << ": " << problem.status();
    for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
      for (const auto& layouts : RowMajorLayouts()) {
        CheckAll(MakeOperation({.problem = *problem,
                                .dtype = dtype,
                                .result_dtype = dtype,
                                .side_dtype = dtype,
                                .layouts = layouts,
                                .scale = 2}),
                 2, &seen);
        CheckAll(
            MakeOperation({.problem = *problem,
                           .results = {Result::kGradInput, Result::kGradWeight,
                                       Result::kGradBias},
                           .dtype = dtype,
                           .side_dtype = dtype,
                           .layouts = layouts}),
            3, &seen);
      }
    }
  }
  for (CutAxis axis : {CutAxis::kBatch, CutAxis::kRows, CutAxis::kGroups}) {
    EXPECT_GT(seen[axis], 0) << ToString(Partition{axis});
  }
}

TEST(OnednnPartition, RandomOperations) {
  std::map<CutAxis, int> seen;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937 random(seed);
    const ConvOperation operation = RandomOperation(200'000, &random);
    if (operation.problem.batch == 0) continue;
    CheckAll(operation, 2 + seed % 2, &seen);
  }
  int cut = 0;
  for (const auto& [axis, times] : seen) cut += times;
  EXPECT_GT(cut, 100);
}

TEST(OnednnPartition, PiecesWithOneWeightShareItsForm) {
  const auto bytes_of = [](const char* text, const Partition& partition) {
    const auto operation = WholeOperation(*Parse(text), Direction::kBackward,
                                          DataType::kF16, Layout::kNXC);
    const auto plan =
        CuttingBackend(partition, 2).MakePlan(operation, PlanOptions());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return (*plan)->prepared_weight_bytes();
  };
  const char* text = "conv2d_n8_c64_o32_i6_k3_p1";
  const int64_t weight = 64 * 32 * 9 * int64_t{sizeof(float)};
  EXPECT_EQ(bytes_of(text, {CutAxis::kBatch, 1}), weight);
  EXPECT_EQ(bytes_of(text, {CutAxis::kBatch, 4}), weight);
  // Pieces of three items and of two items have different plans.
  EXPECT_EQ(bytes_of("conv2d_n5_c64_o32_i6_k3_p1", {CutAxis::kBatch, 1}),
            2 * weight);
}

TEST(OnednnPartition, TextsAreReadBack) {
  for (const Partition& partition : {Partition{}, Partition{CutAxis::kBatch, 8},
                                     Partition{CutAxis::kGroups}}) {
    EXPECT_EQ(ParsePartition(ToString(partition)), partition);
  }
  for (const char* text : {"", "batch*", "batch*0", "batch*1", "batch*1000",
                           "batch*2*2", "rows ", "any"}) {
    EXPECT_EQ(ParsePartition(text), std::nullopt) << text;
  }
}

TEST(OnednnPartition, NothingIsCutThatCantBe) {
  const auto backward = [](const char* text, Layout layout) {
    return WholeOperation(*Parse(text), Direction::kBackward, DataType::kF32,
                          layout);
  };
  const char* items = "conv2d_n4_c32_o32_i8_k3_p1";
  EXPECT_THAT(PartitionsOf(backward(items, Layout::kNCX), 2),
              ElementsAre(Partition{CutAxis::kBatch}));
  EXPECT_THAT(PartitionsOf(backward(items, Layout::kNCX), 1), IsEmpty());
  // 3 threads can't share 4 items fairly.
  EXPECT_THAT(PartitionsOf(backward(items, Layout::kNCX), 3), IsEmpty());
  // One item with one group and windows that overlap has no axis to cut.
  EXPECT_THAT(
      PartitionsOf(backward("conv2d_n1_c32_o32_i8_k3_p1", Layout::kNCX), 2),
      IsEmpty());
  EXPECT_THAT(
      PartitionsOf(backward("conv2d_n3_c8_o8_i8_k3_b1x8x6x1", Layout::kNCX), 2),
      IsEmpty());
}

}  // namespace
}  // namespace convgrad::onednn
