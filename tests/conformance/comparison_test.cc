// Tests that the suite's comparisons refuse wrong results.
#include "tests/conformance/comparison.h"

#include <cmath>

#include "backends/core/logical_tensor.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {
namespace {

// A forward on real numbers, its expectation and its rounded result, which
// tests then alter.
class ComparisonTest : public testing::Test {
 protected:
  void Prepare(DataType dtype, LayoutSet layouts = {}) {
    OperationSpec spec{.problem = *Parse("conv2d_n2_c64_o9_i6_k3_p1")};
    spec.dtype = spec.result_dtype = dtype;
    spec.layouts = layouts;
    operation_ = MakeOperation(spec);
    ExactOperands operands;
    operands[0] = RealFill(2 * 64 * 36, 1, dtype);
    operands[1] = RealFill(9 * 64 * 9, 2, dtype);
    expected_ = ExpectReal(operation_, Result::kOutput, operands);
    values_ = expected_.value;
    Store();
  }

  void Store() {
    const TensorDescriptor& tensor = operation_.results[0].descriptor;
    stored_.resize(*ByteSize(tensor));
    StoreLogical(tensor, values_, stored_.data());
  }

  StoredResult Got() const {
    return {&operation_, &operation_.results[0], stored_.data()};
  }
  bool Within() const {
    return IsWithinBound(Got(), expected_, DataKind::kZeroMean);
  }

  ConvOperation operation_;
  ExpectedResult expected_;
  std::vector<double> values_;
  std::vector<char> stored_;
};

TEST_F(ComparisonTest, TheRoundedResultPassesEverything) {
  for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    Prepare(dtype);
    EXPECT_TRUE(IsExactly(Got(), expected_));
    EXPECT_TRUE(Within());
    EXPECT_TRUE(IsWithinBound(Got(), expected_, DataKind::kAny));
    EXPECT_TRUE(IsWithinNorm(Got(), expected_));
  }
}

TEST_F(ComparisonTest, OneStepInOneElementIsNotExactAndIsNamed) {
  Prepare(DataType::kF32);
  values_[9 * 36 + 2 * 36 + 7] *= 1 + std::ldexp(1, -22);
  Store();
  const auto verdict = IsExactly(Got(), expected_);
  EXPECT_FALSE(verdict);
  const std::string message = verdict.message();
  EXPECT_NE(message.find("forward conv2d_n2_c64_o9"), std::string::npos);
  EXPECT_NE(message.find("at [1,2,1,1] got"), std::string::npos) << message;
  EXPECT_TRUE(Within());
}

TEST_F(ComparisonTest, SixteenBitAccumulationIsOutOfBounds) {
  Prepare(DataType::kF16);
  for (double& value : values_) value *= 1 + std::ldexp(1, -9);
  Store();
  EXPECT_FALSE(Within());
  EXPECT_FALSE(IsWithinNorm(Got(), expected_));
}

// TF32 keeps 10 of the 23 mantissa bits of each operand, so its errors are near
// 2^-11 R.
TEST_F(ComparisonTest, ReducedPrecisionProductsAreOutOfBounds) {
  Prepare(DataType::kF32);
  for (size_t i = 0; i < values_.size(); ++i) {
    values_[i] += expected_.root_sum_squares[i] * std::ldexp(1, -12);
  }
  Store();
  EXPECT_FALSE(Within());
}

TEST_F(ComparisonTest, NaNIsNeverWithinBounds) {
  Prepare(DataType::kF32);
  values_[5] = NAN;
  Store();
  EXPECT_FALSE(Within());
  EXPECT_FALSE(IsExactly(Got(), expected_));
  EXPECT_FALSE(IsWithinNorm(Got(), expected_));
}

TEST_F(ComparisonTest, ZerosOfEitherSignAreEqual) {
  Prepare(DataType::kF32);
  expected_.value[3] = 0;
  values_[3] = -0.0;
  Store();
  EXPECT_TRUE(IsExactly(Got(), expected_));
}

TEST_F(ComparisonTest, DirtyPadLanesAreNoticed) {
  Prepare(DataType::kBF16, BlockedLayouts()[0]);
  EXPECT_TRUE(IsExactly(Got(), expected_));
  stored_[2 * 9 + 1] = '\x80';  // lane 9 of 16 becomes -0
  EXPECT_FALSE(IsExactly(Got(), expected_));
}

TEST(TensorFillTest, IntegersAreSmallAndNeverZero) {
  for (double value : IntegerFill(1000, 3)) {
    EXPECT_EQ(value, std::round(value));
    EXPECT_GE(std::fabs(value), 1);
    EXPECT_LE(std::fabs(value), 4);
  }
  EXPECT_NE(IntegerFill(100, 3), IntegerFill(100, 4));
  EXPECT_EQ(IntegerFill(100, 3), IntegerFill(100, 3));
}

TEST(TensorFillTest, RealsAreZeroMeanAndExactInTheirDtype) {
  double sum = 0;
  for (double value : RealFill(10000, 1, DataType::kBF16)) {
    uint16_t bits;
    StoreRounded(DataType::kBF16, value, &bits);
    EXPECT_EQ(LoadAsDouble(DataType::kBF16, &bits), value);
    sum += value;
  }
  EXPECT_LT(std::fabs(sum), 300);
}

TEST(GuardedBufferTest, NoticesWritesOnEitherSide) {
  GuardedBuffer buffer(10);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  EXPECT_EQ(buffer.data()[9], std::byte{0xff});
  buffer.data()[9] = std::byte{1};
  EXPECT_TRUE(buffer.GuardsIntact());
  buffer.data()[10] = std::byte{1};
  EXPECT_FALSE(buffer.GuardsIntact());
  GuardedBuffer other(0);
  EXPECT_TRUE(other.GuardsIntact());
  other.data()[-1] = std::byte{1};
  EXPECT_FALSE(other.GuardsIntact());
}

}  // namespace
}  // namespace convgrad::testing_support
