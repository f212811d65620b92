#include <limits>
#include <random>

#include "backends/core/program/program.h"
#include "backends/core/program/program_shapes.h"
#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/random_program.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kBlock[] =
    "input x\n"
    "input target index\n"
    "parameter w[0] [4, 3, 3, 3]\n"
    "parameter gamma [4]\n"
    "parameter mean [4] fixed\n"
    "parameter var [4] fixed\n"
    "parameter count [] i64 fixed\n"
    "a = conv(x, w[0], padding=same, stride=[1, 1])\n"
    "b = batch_norm(a, gamma, none, mean, var, count, eps=1e-06, "
    "momentum=none, training=true)\n"
    "c = dropout(b, p=1.0)\n"
    "d = flatten(c)\n"
    "input = cross_entropy(d, target, ignore_index=-1)\n"
    "output input\n"
    "output d\n";

std::string ErrorOf(absl::string_view text) {
  return std::string(ParseProgram(text).status().message());
}

TEST(ProgramTextTest, WritesWhatItReads) {
  const auto program = ParseProgram(kBlock);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(ToString(*program), kBlock);
}

TEST(ProgramTextTest, ReadsEveryPart) {
  const auto program = ParseProgram(kBlock);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->inputs[1].is_index);
  EXPECT_THAT(program->parameters[0].dims, ElementsAre(4, 3, 3, 3));
  EXPECT_EQ(program->parameters[4].dtype, DataType::kI64);
  EXPECT_FALSE(program->parameters[2].trainable);
  EXPECT_THAT(program->steps[1].operands,
              ElementsAre("a", "gamma", "", "mean", "var", "count"));
  EXPECT_THAT(program->outputs, ElementsAre("input", "d"));
}

TEST(ProgramTextTest, KindsOfValuesStayAsTheyWere) {
  Program program = *ParseProgram(
      "input x\nparameter w [1, 1, 1]\na = conv(x, w)\n"
      "b = normalize(a, mean=[0.5], std=1)\noutput b\n");
  for (const AttributeValue& value :
       {AttributeValue(1.0), AttributeValue(int64_t{1}), AttributeValue(-0.1),
        AttributeValue(1e300), AttributeValue(5e-324),
        AttributeValue(std::vector<int64_t>{1}),
        AttributeValue(std::vector<double>{1}),
        AttributeValue(std::vector<double>{1, 1.0 / 3})}) {
    program.steps[1].attributes["std"] = value;
    const auto read = ParseProgram(ToString(program));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, program) << ToString(program);
  }
}

TEST(ProgramTextTest, InfiniteNumbersStayAsTheyWere) {
  constexpr char kText[] =
      "input x\nm = gt(x, other=-inf)\ny = where(m, x, other=inf)\noutput y\n";
  const auto program = ParseProgram(kText);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->steps[0].attributes.at("other"),
            AttributeValue(-std::numeric_limits<double>::infinity()));
  EXPECT_EQ(ToString(*program), kText);
}

TEST(ProgramTextTest, RandomProgramsAreReadAsTheyWereWritten) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const Program program = *testing_support::RandomProgram(seed).program;
    const auto read = ParseProgram(ToString(program));
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << ToString(program);
    EXPECT_EQ(*read, program) << ToString(program);
  }
}

TEST(ProgramTextTest, MutatedTextsAreRefusedOrMeanAProgram) {
  constexpr absl::string_view kCharacters = "xyw0129.-e,=()[]# \nnoae";
  std::mt19937_64 random(1);
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const auto given = testing_support::RandomProgram(seed % 100 + 1);
    std::string text = ToString(*given.program);
    text[random() % text.size()] = kCharacters[random() % kCharacters.size()];
    const auto program = ParseProgram(text);
    if (!program.ok()) {
      EXPECT_TRUE(DetailOf(program.status())) << program.status();
      continue;
    }
    ++accepted;
    EXPECT_EQ(*ParseProgram(ToString(*program)), *program) << text;
    (void)InferShapes(*program, given.inputs);
  }
  EXPECT_GT(accepted, 10);
}

TEST(ProgramTextTest, SkipsCommentsAndEmptyLines) {
  const auto program =
      ParseProgram("# a network\n\n  input x # images\ny=relu( x )\noutput y");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(ToString(*program), "input x\ny = relu(x)\noutput y\n");
}

TEST(ProgramTextTest, ErrorsNameLineAndToken) {
  EXPECT_EQ(ErrorOf("input x\ny = rely(x)\n"),
            "line 2: found \"rely\", expected an operator");
  EXPECT_THAT(ErrorOf("input x\ny = relu(x\n"), HasSubstr("line 2"));
  EXPECT_THAT(ErrorOf("input x\ny = relu()\n"), HasSubstr("an operand"));
  EXPECT_THAT(ErrorOf("inptu x\n"), HasSubstr("line 1: found \"inptu\""));
  EXPECT_THAT(ErrorOf("parameter w [1, x]\n"), HasSubstr("\" x\""));
  EXPECT_THAT(ErrorOf("parameter w [1] float\n"), HasSubstr("\"float\""));
  EXPECT_THAT(ErrorOf("parameter w\n"), HasSubstr("dims"));
  EXPECT_THAT(ErrorOf("y = conv(x, w, groups=1, groups=1)"),
              HasSubstr("each attribute once"));
  EXPECT_THAT(ErrorOf("y = conv(x, groups=1, w)"),
              HasSubstr("operands before attributes"));
  EXPECT_THAT(ErrorOf("y = conv(x, w, stride=[1, a])"),
              HasSubstr("\"[1, a]\""));
}

}  // namespace
}  // namespace convgrad
