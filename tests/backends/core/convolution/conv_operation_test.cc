#include "backends/core/convolution/conv_operation.h"

#include <cmath>
#include <functional>
#include <limits>

#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

ConvProblem Problem(const char* text) { return *Parse(text); }

void Give(ConvOperation& operation, Operand which,
          DataType dtype = DataType::kBF16) {
  operation.operand(which) = TensorDescriptor{
      dtype, which == Operand::kWeight ? Layout::kOIX : Layout::kNCX,
      DimsOf(operation.problem, which), 0, operation.problem.groups};
}

void Want(ConvOperation& operation, Result which,
          DataType dtype = DataType::kF32) {
  operation.results.push_back(
      {which,
       {dtype, which == Result::kGradWeight ? Layout::kOIX : Layout::kNCX,
        DimsOf(operation.problem, which), 0, operation.problem.groups}});
}

ConvOperation Forward() {
  ConvOperation operation;
  operation.problem = Problem("conv2d_n2_c4_o6_g2_i5_k3_b_res_relu");
  Give(operation, Operand::kInput);
  Give(operation, Operand::kWeight);
  Give(operation, Operand::kBias, DataType::kF32);
  Give(operation, Operand::kResidual);
  Want(operation, Result::kOutput, DataType::kBF16);
  return operation;
}

ConvOperation Backward() {
  ConvOperation operation;
  operation.direction = Direction::kBackward;
  operation.problem = Problem("conv2d_n2_c4_o6_g2_i5_k3_b_relu");
  Give(operation, Operand::kInput);
  Give(operation, Operand::kWeight);
  Give(operation, Operand::kGradOutput);
  Give(operation, Operand::kOutput, DataType::kF32);
  Want(operation, Result::kGradInput, DataType::kBF16);
  Want(operation, Result::kGradWeight);
  Want(operation, Result::kGradBias);
  Want(operation, Result::kGradResidual);
  return operation;
}

struct BadOperation {
  std::string name;
  ConvOperation (*base)();
  std::function<void(ConvOperation&)> change;
  Reason reason;
  std::string message;
};

class BadOperationTest : public testing::TestWithParam<BadOperation> {};

TEST_P(BadOperationTest, IsRefusedNamingFieldFoundAndExpected) {
  ConvOperation operation = GetParam().base();
  ASSERT_TRUE(Validate(operation).ok()) << Validate(operation);
  GetParam().change(operation);
  const absl::Status status = Validate(operation);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), GetParam().message);
  ASSERT_TRUE(DetailOf(status).has_value());
  EXPECT_EQ(DetailOf(status)->reason, GetParam().reason);
}

INSTANTIATE_TEST_SUITE_P(
    Operands, BadOperationTest,
    testing::Values(
        BadOperation{"MissingWeight", &Forward,
                     [](auto& o) { o.operand(Operand::kWeight).reset(); },
                     Reason::kMissing,
                     "operands.weight: found nothing, expected a tensor, "
                     "which the results asked for need"},
        BadOperation{"MissingBias", &Forward,
                     [](auto& o) { o.operand(Operand::kBias).reset(); },
                     Reason::kMissing,
                     "operands.bias: found nothing, expected a tensor, which "
                     "the results asked for need"},
        BadOperation{"MissingOutputUnderRelu", &Backward,
                     [](auto& o) { o.operand(Operand::kOutput).reset(); },
                     Reason::kMissing,
                     "operands.output: found nothing, expected a tensor, "
                     "which the results asked for need"},
        BadOperation{"InputDims", &Backward,
                     [](auto& o) { o.operand(Operand::kInput)->dims[2] = 6; },
                     Reason::kShapeMismatch,
                     "operands.input.dims: found [2,4,6,5], expected "
                     "[2,4,5,5]"},
        BadOperation{"BiasDims", &Forward,
                     [](auto& o) { o.operand(Operand::kBias)->dims = {1}; },
                     Reason::kShapeMismatch,
                     "operands.bias.dims: found [1], expected [6]"},
        BadOperation{"BiasLayout", &Forward,
                     [](auto& o) {
                       o.operand(Operand::kBias)->layout = Layout::kNDC1HWC0;
                     },
                     Reason::kLayoutMismatch,
                     "operands.bias.layout: found NDC1HWC0, expected none: a "
                     "bias is row-major"},
        BadOperation{
            "WeightInActivationLayout", &Forward,
            [](auto& o) { o.operand(Operand::kWeight)->layout = Layout::kNXC; },
            Reason::kLayoutMismatch,
            "operands.weight.layout: found NXC, expected a weight "
            "layout: OIX, OXI, XIO, FRACTAL_Z_3D"},
        BadOperation{"PrimaryDtypesDiffer", &Backward,
                     [](auto& o) {
                       o.operand(Operand::kGradOutput)->dtype = DataType::kF16;
                     },
                     Reason::kDtypeMismatch,
                     "operands.grad_output.dtype: found f16, expected bf16, "
                     "the dtype of input"},
        BadOperation{"ResidualOfTheOtherHalfType", &Forward,
                     [](auto& o) {
                       o.operand(Operand::kResidual)->dtype = DataType::kF16;
                     },
                     Reason::kDtypeMismatch,
                     "operands.residual.dtype: found f16, expected f32 or the "
                     "operands' bf16"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Results, BadOperationTest,
    testing::Values(
        BadOperation{"None", &Backward, [](auto& o) { o.results.clear(); },
                     Reason::kMissing,
                     "results: found an empty list, expected at least one "
                     "result"},
        BadOperation{"Twice", &Backward,
                     [](auto& o) { o.results.push_back(o.results[1]); },
                     Reason::kDuplicate,
                     "results[4].which: found grad_weight again, expected "
                     "each result once"},
        BadOperation{"GradientOfAForward", &Forward,
                     [](auto& o) { o.results[0].which = Result::kGradInput; },
                     Reason::kInvalidEnum,
                     "results[0].which: found grad_input, expected output"},
        BadOperation{"OutputOfABackward", &Backward,
                     [](auto& o) { o.results[0].which = Result::kOutput; },
                     Reason::kInvalidEnum,
                     "results[0].which: found output, expected a gradient"},
        BadOperation{"InfiniteScale", &Backward,
                     [](auto& o) { o.results[2].scale = INFINITY; },
                     Reason::kOutOfRange,
                     "results[2].scale: found inf, expected a finite number"},
        BadOperation{
            "Dtype", &Backward,
            [](auto& o) { o.results[1].descriptor.dtype = DataType::kF16; },
            Reason::kDtypeMismatch,
            "results[1].dtype: found f16, expected f32 or the "
            "operands' bf16"},
        BadOperation{"Dims", &Backward,
                     [](auto& o) { o.results[1].descriptor.dims[1] = 4; },
                     Reason::kShapeMismatch,
                     "results[1].dims: found [6,4,3,3], expected [6,2,3,3]"},
        BadOperation{
            "Layout", &Backward,
            [](auto& o) { o.results[0].descriptor.layout = Layout::kXIO; },
            Reason::kLayoutMismatch,
            "results[0].layout: found XIO, expected an activation "
            "layout: NCX, NXC, NDC1HWC0"},
        BadOperation{
            "NoC0", &Backward,
            [](auto& o) { o.results[0].descriptor.layout = Layout::kNDC1HWC0; },
            Reason::kOutOfRange, "results[0].c0: found 0, expected 16"},
        BadOperation{"FractalGroups", &Backward,
                     [](auto& o) {
                       auto& tensor = o.results[1].descriptor;
                       tensor.layout = Layout::kFractalZ3D;
                       tensor.c0 = 16;
                       tensor.groups = 1;
                     },
                     Reason::kShapeMismatch,
                     "results[1].groups: found 1, expected 2, the problem's"}),
    [](const auto& info) { return info.param.name; });

TEST(ConvOperationTest, WholeOperationsAreValidAndHaveEveryResult) {
  for (const char* text :
       {"conv2d_n2_c4_o6_i7_k3_b_relu", "linear_n3_c4_o5_b",
        "convtranspose1d_n2_c4_o6_i7_k2_s2", "conv3d_n1_c2_o2_i3_k1_res"}) {
    const ConvProblem problem = *Parse(text);
    for (Layout layout : {Layout::kNCX, Layout::kNXC}) {
      EXPECT_TRUE(Validate(WholeOperation(problem, Direction::kForward,
                                          DataType::kF32, layout))
                      .ok());
      const ConvOperation backward = WholeOperation(
          problem, Direction::kBackward, DataType::kBF16, layout);
      const absl::Status status = Validate(backward);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(backward.results.size(),
                2 + problem.bias.has_value() + problem.residual);
      EXPECT_EQ(backward.result(Result::kGradWeight)->descriptor.dtype,
                DataType::kF32);
    }
  }
}

TEST(ConvOperationTest, OneC0PerRequest) {
  ConvOperation operation = Forward();
  for (Operand which : {Operand::kInput, Operand::kWeight, Operand::kResidual,
                        Operand::kBias}) {
    operation.operand(which)->dtype = DataType::kF32;
  }
  operation.results[0].descriptor.dtype = DataType::kF32;
  operation.operand(Operand::kInput)->layout = Layout::kNDC1HWC0;
  operation.operand(Operand::kInput)->c0 = 8;
  operation.operand(Operand::kWeight)->layout = Layout::kFractalZ3D;
  operation.operand(Operand::kWeight)->c0 = 8;
  EXPECT_TRUE(Validate(operation).ok()) << Validate(operation);
  operation.operand(Operand::kWeight)->c0 = 16;
  EXPECT_EQ(Validate(operation).message(),
            "operands.weight.c0: found 16, expected 8, the request's one c0");
  operation.operand(Operand::kInput)->c0 = 16;
  EXPECT_TRUE(Validate(operation).ok()) << Validate(operation);
}

TEST(ConvOperationTest, EightChannelBlocksAreOnlyForF32) {
  ConvOperation operation = Forward();
  operation.operand(Operand::kInput)->layout = Layout::kNDC1HWC0;
  operation.operand(Operand::kInput)->c0 = 8;
  EXPECT_EQ(Validate(operation).message(),
            "operands.input.c0: found 8, expected 16");
}

TEST(ConvOperationTest, GradBiasAloneNeedsGradOutputAndUnderReluTheOutput) {
  ConvOperation operation = Backward();
  operation.results = {operation.results[2]};
  EXPECT_FALSE(IsNeeded(operation, Operand::kInput));
  EXPECT_FALSE(IsNeeded(operation, Operand::kWeight));
  EXPECT_TRUE(IsNeeded(operation, Operand::kGradOutput));
  EXPECT_TRUE(IsNeeded(operation, Operand::kOutput));
  operation.problem.relu = false;
  EXPECT_FALSE(IsNeeded(operation, Operand::kOutput));
  operation.operand(Operand::kInput).reset();
  operation.operand(Operand::kWeight).reset();
  operation.operand(Operand::kOutput).reset();
  EXPECT_TRUE(Validate(operation).ok()) << Validate(operation);
}

TEST(ConvOperationTest, UnneededOperandsAreValidatedThenDropped) {
  ConvOperation operation = Backward();
  operation.results = {operation.results[0]};  // grad_input
  EXPECT_TRUE(Validate(operation).ok());
  ConvOperation bad = operation;
  bad.operand(Operand::kInput)->dims[0] = 7;
  EXPECT_FALSE(Validate(bad).ok());
  DropUnneeded(&operation);
  EXPECT_FALSE(operation.operand(Operand::kInput).has_value());
  EXPECT_TRUE(operation.operand(Operand::kWeight).has_value());
}

TEST(ConvOperationTest, FlopsCountTwoPerMultiplyAddOfEachPass) {
  ConvOperation operation = Backward();
  EXPECT_EQ(operation.flops(), 4 * MultiplyAdds(operation.problem));
  operation.results = {operation.results[2]};
  EXPECT_EQ(operation.flops(), 0);
}

TEST(ConvOperationTest, TextNamesDtypesLayoutsAndScales) {
  ConvOperation operation = Backward();
  operation.results.resize(2);
  operation.results[1].scale = 0.5;
  operation.results[1].descriptor.layout = Layout::kFractalZ3D;
  operation.results[1].descriptor.c0 = 16;
  EXPECT_EQ(ToString(operation),
            "backward conv2d_n2_c4_o6_g2_i5x5_k3x3_b6_relu input=bf16:NCX "
            "weight=bf16:OIX grad_output=bf16:NCX output=f32:NCX -> "
            "grad_input=bf16:NCX grad_weight=f32:FRACTAL_Z_3D/16*0.5");
}

// Two scales that print alike would share one plan key.
TEST(ConvOperationTest, NeighbouringScalesHaveDifferentTexts) {
  ConvOperation first = Backward(), second = Backward();
  first.results[0].scale = 0.1f;
  second.results[0].scale = std::nextafter(0.1f, 1.0f);
  EXPECT_NE(ToString(first), ToString(second));
}

}  // namespace
}  // namespace convgrad
