#include "backends/reference/reference_backend.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/checked_run.h"
#include "tests/conformance/operation_spec.h"

namespace convgrad {
namespace {

using testing_support::MakeOperation;
using testing_support::OperationSpec;
using testing_support::RunChecked;

class ReferenceBackendTest : public testing::Test {
 protected:
  // Returns the first result's elements, which must be f32 or bf16.
  std::vector<double> Compute(const ConvOperation& operation,
                              const ExactOperands& operands) {
    const auto results = RunChecked(*backend_, operation, operands);
    EXPECT_TRUE(results.ok()) << results.status();
    const DataType dtype = operation.results[0].descriptor.dtype;
    const GuardedBuffer& bytes = (*results)[0];
    std::vector<double> values;
    for (int64_t i = 0; i < bytes.size(); i += ByteSizeOf(dtype)) {
      values.push_back(LoadAsDouble(dtype, bytes.data() + i));
    }
    return values;
  }

  using GuardedBuffer = testing_support::GuardedBuffer;
  const std::unique_ptr<Backend> backend_ = *MakeReferenceBackend();
};

TEST_F(ReferenceBackendTest, SaysWhatItIs) {
  EXPECT_EQ(backend_->name(), "reference");
  const BackendCapabilities capabilities = backend_->capabilities();
  EXPECT_EQ(capabilities.dtypes.size(), 3u);
  EXPECT_EQ(capabilities.layouts.size(), 7u);
  EXPECT_EQ(capabilities.max_spatial_rank, 3);
  EXPECT_TRUE(capabilities.gaps.empty());
  const auto plan =
      backend_->MakePlan(MakeOperation({.problem = *Parse("linear")}), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->implementation(), "loops:double");
  EXPECT_EQ((*plan)->scratch_bytes(), 0);
  EXPECT_GT((*plan)->resident_bytes(), 0);
}

// 256 * 1 + 1 lies between two bf16 numbers, and 1 * 1 twice more lifts it over
// the tie: rounding after each step would stay at 256.
TEST_F(ReferenceBackendTest, RoundsOnceOnStore) {
  OperationSpec spec{.problem = *Parse("linear_c3_b_res")};
  spec.dtype = spec.result_dtype = spec.side_dtype = DataType::kBF16;
  const ConvOperation operation = MakeOperation(spec);
  const ExactOperands operands = {{{256, 0.5, 0.25}, {1, 1, 1}, {0.5}, {0}}};
  EXPECT_THAT(Compute(operation, operands), testing::ElementsAre(258));
}

TEST_F(ReferenceBackendTest, ScalesInF32AfterTheRelu) {
  OperationSpec spec{.problem = *Parse("linear_n2_relu")};
  spec.scale = -3;
  const ConvOperation operation = MakeOperation(spec);
  const ExactOperands operands = {{{2, -2}, {1}}};
  EXPECT_THAT(Compute(operation, operands), testing::ElementsAre(-6, 0));
  spec.scale = 0.1f;
  const ConvOperation tenth = MakeOperation(spec);
  EXPECT_EQ(Compute(tenth, operands)[0], 2 * 0.1f);
}

// 3 * scale is just below 263/256, a tie of bf16, and becomes the tie in f32.
// If it were scaled in double, it would round down to 262/256.
TEST_F(ReferenceBackendTest, ScaledProductIsRoundedToF32BeforeTheStore) {
  OperationSpec spec{.problem = *Parse("linear")};
  spec.dtype = spec.result_dtype = DataType::kBF16;
  spec.scale = 263.0f / 256 / 3;
  const ConvOperation operation = MakeOperation(spec);
  EXPECT_THAT(Compute(operation, {{{3}, {1}}}),
              testing::ElementsAre(264.0 / 256));
}

TEST_F(ReferenceBackendTest, MaskIsOfTheStoredOutputAndIgnoresTheScale) {
  OperationSpec spec{.problem = *Parse("linear_n3_relu")};
  spec.results = {Result::kGradResidual};
  spec.scale = -1;
  const ConvOperation operation = MakeOperation(spec);
  ExactOperands operands;
  operands[static_cast<size_t>(Operand::kGradOutput)] = {1, 2, 3};
  // The smallest f32 subnormal opens the mask.
  operands[static_cast<size_t>(Operand::kOutput)] = {std::ldexp(1, -149), 0,
                                                     -1};
  EXPECT_THAT(Compute(operation, operands), testing::ElementsAre(-1, 0, 0));
}

TEST_F(ReferenceBackendTest, IgnoresOperandsThatAreNotNeeded) {
  OperationSpec spec{.problem = *Parse("linear_n2")};
  spec.results = {Result::kGradBias};
  ConvOperation operation = MakeOperation(spec);
  operation.operand(Operand::kInput) = {DataType::kF32, Layout::kNCX,
                                        InputDims(operation.problem)};
  ExactOperands operands;
  operands[static_cast<size_t>(Operand::kInput)] = {NAN, NAN};
  operands[static_cast<size_t>(Operand::kGradOutput)] = {1, 2};
  EXPECT_THAT(Compute(operation, operands), testing::ElementsAre(3));
}

// An empty batch has no bytes, even if its other extents are huge.
TEST_F(ReferenceBackendTest, AnEmptyBatchTakesNoTimeForItsPositions) {
  const ConvOperation operation = MakeOperation(
      {.problem = *Parse("conv1d_n0_c1_o1_i1_k1_p1000000000000000")});
  EXPECT_THAT(Compute(operation, {{{}, {1}}}), testing::IsEmpty());
}

}  // namespace
}  // namespace convgrad
