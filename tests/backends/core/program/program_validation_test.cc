#include "backends/core/program/program.h"
#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Declares the names that the steps below use.
constexpr char kDeclarations[] =
    "input x\n"
    "input t index\n"
    "parameter w [4, 3, 3, 3]\n"
    "parameter b [4]\n"
    "parameter m [4] fixed\n"
    "parameter v [4] fixed\n"
    "parameter n [] i64 fixed\n";

// Returns the error of a program of `steps`, whose last one makes y.
std::string ErrorOf(absl::string_view steps) {
  return std::string(
      ParseProgram(absl::StrCat(kDeclarations, steps, "\noutput y\n"))
          .status()
          .message());
}

TEST(ProgramValidationTest, NamesStepAttributeFoundAndExpected) {
  EXPECT_EQ(ErrorOf("a = relu(x)\ny = conv(a, w, stride=0)"),
            "steps[1] (y).stride: found 0, expected an integer or a list of "
            "integers from 1");
  EXPECT_EQ(ErrorOf("y = conv(x, w, padding=full)"),
            "steps[0] (y).padding: found full, expected an integer or a list "
            "of integers from 0, or same or valid");
  EXPECT_EQ(ErrorOf("y = upsample(x, size=2, mode=cubic)"),
            "steps[0] (y).mode: found cubic, expected nearest or linear or "
            "bilinear or trilinear or bicubic");
}

TEST(ProgramValidationTest, RefusesAttributesThatAreNotTheOperators) {
  EXPECT_THAT(ErrorOf("y = relu(x, slope=1)"), HasSubstr("found slope"));
  EXPECT_THAT(ErrorOf("y = conv(x, w, groups=1.0)"), HasSubstr("found 1.0"));
  EXPECT_THAT(ErrorOf("y = conv(x, w, groups=true)"), HasSubstr("found true"));
  EXPECT_THAT(ErrorOf("y = conv(x, w, groups=[1])"), HasSubstr("found [1]"));
  EXPECT_THAT(ErrorOf("y = dropout(x, p=1.5)"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(ErrorOf("y = pad(x, pads=[0, -1])"), HasSubstr("from 0"));
  EXPECT_THAT(ErrorOf("y = pow(x)"), HasSubstr(".exponent: found none"));
  EXPECT_THAT(ErrorOf("y = group_norm(x, groups=0)"), HasSubstr("from 1"));
  EXPECT_THAT(ErrorOf("y = dropout(x, p=nan)"), HasSubstr("found nan"));
  EXPECT_THAT(ErrorOf("y = dropout(x, p=1e999)"), HasSubstr("found inf"));
  EXPECT_THAT(ErrorOf("y = add(x, other=inf)"), HasSubstr("found inf"));
  EXPECT_THAT(ErrorOf("y = eq(x, other=nan)"), HasSubstr("found nan"));
  EXPECT_THAT(ErrorOf("y = max_pool(x)"),
              AllOf(HasSubstr("kernel_size"), HasSubstr("found none")));
}

TEST(ProgramValidationTest, RefusesCombinationsWithoutMeaning) {
  EXPECT_THAT(ErrorOf("y = pad(x, mode=reflect, pads=[1, 1], value=2)"),
              HasSubstr(".value: found 2, expected none unless mode"));
  EXPECT_THAT(ErrorOf("y = index_select(x, w, axis=0)"),
              HasSubstr("expected i64 of rank 1 to 6"));
  EXPECT_THAT(ErrorOf("y = index_select(x, n, axis=0)"),
              HasSubstr("n, i64 [], expected i64 of rank 1 to 6"));
  EXPECT_THAT(ErrorOf("y = upsample(x)"), HasSubstr("found neither"));
  EXPECT_THAT(ErrorOf("y = gt(x)"), HasSubstr("either b or other"));
  EXPECT_THAT(ErrorOf("y = where(x, x, x, other=0)"),
              HasSubstr("found b and other, expected either b or other"));
  EXPECT_THAT(ErrorOf("y = upsample(x, size=2, scale_factor=2)"),
              HasSubstr("found both"));
  EXPECT_THAT(ErrorOf("y = upsample(x, scale_factor=0)"),
              HasSubstr("more than 0"));
  EXPECT_THAT(ErrorOf("y = upsample(x, size=2, align_corners=true)"),
              HasSubstr("false of mode=nearest"));
  EXPECT_THAT(ErrorOf("y = normalize(x, mean=0, std=[1, 0])"),
              HasSubstr("other than 0"));
  EXPECT_THAT(ErrorOf("y = mse(x, x, denominator=2, reduction=sum)"),
              HasSubstr("reduction is mean"));
  EXPECT_THAT(ErrorOf("y = mse(x, x, denominator=0)"),
              HasSubstr("more than 0"));
}

TEST(ProgramValidationTest, RefusesOperandsOfTheWrongKind) {
  EXPECT_THAT(ErrorOf("y = relu(z)"), HasSubstr("steps[0] (y).x: found z"));
  EXPECT_THAT(ErrorOf("y = relu(y)"), HasSubstr("an earlier step"));
  EXPECT_THAT(ErrorOf("y = relu(w)"), HasSubstr("an earlier step"));
  EXPECT_THAT(ErrorOf("y = relu(none)"), HasSubstr("found none"));
  EXPECT_THAT(ErrorOf("y = relu(x, x)"), HasSubstr("at most 1 of relu"));
  EXPECT_THAT(ErrorOf("y = relu(t)"),
              HasSubstr("t, an index input, expected an activation"));
  EXPECT_THAT(ErrorOf("y = layer_norm(x, x)"), HasSubstr("a parameter"));
  EXPECT_THAT(ErrorOf("y = conv(x, b)"), HasSubstr("f32 of rank 3 to 5"));
  EXPECT_THAT(ErrorOf("y = conv(x, w, n)"), HasSubstr("n, i64 []"));
  EXPECT_THAT(ErrorOf("y = concat(x)"), HasSubstr(".next"));
  EXPECT_THAT(ErrorOf("l = mse(x, x)\ny = add(l, l)"),
              HasSubstr("l, a loss, expected an activation"));
  EXPECT_THAT(ErrorOf("l = mse(x, x)\ny = cross_entropy(x, l)"),
              HasSubstr("l, a loss, expected an activation or an index input"));
  EXPECT_THAT(ErrorOf("y = cross_entropy(x, t, b)"),
              HasSubstr("b, trainable, expected a fixed parameter"));
}

TEST(ProgramValidationTest, RefusesIncompleteStatistics) {
  EXPECT_THAT(ErrorOf("y = batch_norm(x)"),
              HasSubstr("running_mean and running_var"));
  EXPECT_THAT(ErrorOf("y = batch_norm(x, b, b, m, none, training=true)"),
              HasSubstr("running_mean and running_var, or none"));
  EXPECT_THAT(
      ErrorOf("y = batch_norm(x, b, b, m, v, momentum=none, training=true)"),
      HasSubstr("num_batches_tracked"));
  EXPECT_THAT(ErrorOf("y = batch_norm(x, b, b, b, v)"),
              HasSubstr("b, trainable"));
  EXPECT_THAT(ErrorOf("a = batch_norm(x, b, b, m, v)\n"
                      "y = batch_norm(a, b, b, m, v, n, training=true)"),
              HasSubstr("a statistic that steps[1] (y) doesn't update"));
}

TEST(ProgramValidationTest, RefusesWhatNoOutputNeeds) {
  EXPECT_EQ(ErrorOf("a = relu(x)\ny = relu6(x)"),
            "steps[0] (a): found a, expected a value that an output needs");
  EXPECT_THAT(ErrorOf("y = relu(x)"), HasSubstr("inputs[1]: found t"));
}

TEST(ProgramValidationTest, RefusesNamesAndTheirRepetition) {
  Program program = *ParseProgram("input x\ny = relu(x)\noutput y\n");
  for (const char* name : {"", "a b", "a/b", "a,b", "a(", "a)", "a=b", "a#b",
                           "none", "\xc3\xa4", "a\n"}) {
    program.inputs[0].name = program.steps[0].operands[0] = name;
    EXPECT_EQ(Validate(program).code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
  program.inputs[0].name = program.steps[0].operands[0] = std::string(240, 'a');
  EXPECT_THAT(Validate(program).message(), HasSubstr("240 bytes"));
  program.inputs[0].name = program.steps[0].operands[0] = "y";
  EXPECT_EQ(DetailOf(Validate(program))->reason, Reason::kDuplicate);
}

TEST(ProgramValidationTest, RefusesOutputsThatAreNoResults) {
  Program program = *ParseProgram("input x\ny = relu(x)\noutput y\n");
  for (const std::vector<std::string>& outputs :
       {std::vector<std::string>{}, {"x"}, {"z"}, {"y", "y"}}) {
    program.outputs = outputs;
    EXPECT_EQ(Validate(program).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ProgramValidationTest, RefusesParametersThatCannotBe) {
  Program program = *ParseProgram(
      "input x\nparameter w [1, 1, 1]\ny = conv(x, w)\noutput y\n");
  for (const Dims& dims : {Dims{1, 0, 1}, Dims{1, -1, 1},
                           Dims{1 << 30, 1 << 30, 8}, Dims{1, 1, 1, 1, 1, 1}}) {
    program.parameters[0].dims = dims;
    EXPECT_EQ(Validate(program).code(), absl::StatusCode::kInvalidArgument);
  }
  program.parameters[0] = {"w", {1, 1, 1}, DataType::kBF16};
  EXPECT_EQ(DetailOf(Validate(program))->reason, Reason::kDtypeMismatch);
}

TEST(ProgramValidationTest, RefusesTooManySteps) {
  Program program = *ParseProgram("input x\ny = relu(x)\noutput y\n");
  program.steps.resize(kMaxProgramSteps + 1);
  EXPECT_EQ(DetailOf(Validate(program))->reason, Reason::kLimitExceeded);
}

TEST(ProgramValidationTest, RefusesTooManyOperands) {
  Program program = *ParseProgram("input x\ny = concat(x, x)\noutput y\n");
  program.steps[0].operands.resize(50'000, "x");
  EXPECT_TRUE(Validate(program).ok());
  program.steps[0].operands.resize(50'001, "x");
  const auto detail = DetailOf(Validate(program));
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kLimitExceeded);
  EXPECT_EQ(detail->found, "50001 operands");
}

TEST(ProgramTest, AttributesHaveTheOperatorsDefaults) {
  const Program program = *ParseProgram(
      "input x\nparameter w [1, 1, 1, 1]\na = conv(x, w, padding=valid)\n"
      "y = max_pool(a, kernel_size=[2, 3])\noutput y\n");
  const ProgramStep& conv = program.steps[0];
  EXPECT_THAT(IntsAttribute(conv, "stride", 2), ElementsAre(1, 1));
  EXPECT_EQ(IntAttribute(conv, "groups"), 1);
  EXPECT_EQ(WordAttribute(conv, "padding"), "valid");
  EXPECT_THAT(IntsAttribute(conv, "padding", 2), ElementsAre());
  const ProgramStep& pool = program.steps[1];
  EXPECT_THAT(IntsAttribute(pool, "kernel_size", 2), ElementsAre(2, 3));
  EXPECT_THAT(IntsAttribute(pool, "stride", 2), ElementsAre());
  EXPECT_FALSE(BoolAttribute(pool, "ceil_mode"));
  ProgramStep norm;
  norm.op = Operator::kBatchNorm;
  EXPECT_EQ(FloatAttribute(norm, "momentum"), 0.1);
  EXPECT_EQ(FloatAttribute(norm, "eps"), 1e-5);
}

TEST(ProgramTest, TrainingBatchNormsUpdateTheirStatisticsOnce) {
  const Program program = *ParseProgram(
      "input x\nparameter v [4] fixed\nparameter n [] i64 fixed\n"
      "parameter m [4] fixed\nparameter o [4] fixed\n"
      "a = batch_norm(x, none, none, m, v, n, training=true)\n"
      "b = batch_norm(a, none, none, m, v, n, training=true)\n"
      "y = batch_norm(b, none, none, o, o)\noutput y\n");
  EXPECT_THAT(UpdatedStatistics(program), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace convgrad
