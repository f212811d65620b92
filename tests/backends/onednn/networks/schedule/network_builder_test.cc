// Tests where a network's operands and results are, and which values are
// converted.
#include "backends/onednn/networks/schedule/network_builder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

using testing::ElementsAre;

TEST(NetworkBuilder, ParametersFollowTheInputs) {
  const auto operation = TwoLayers(ProgramPart::kForward);
  NetworkBuilder builder(*operation, {}, false);
  EXPECT_EQ(PositionOf(builder, builder.Parameter("w"), Area::kOperand), 2u);
  EXPECT_EQ(PositionOf(builder, builder.Parameter("m"), Area::kOperand), 4u);
  EXPECT_EQ(builder.Parameter(""), kNoBuffer);
  EXPECT_EQ(PositionOf(builder, builder.InputBuffer("t"), Area::kOperand), 1u);
  EXPECT_EQ(builder.InputBuffer("t"), builder.InputBuffer("t"));
}

TEST(NetworkBuilder, AnInputOfAnotherLayoutIsImportedOnce) {
  const auto operation =
      OperationOf("input x\na = relu(x)\noutput a\n", {{1, 20, 3}});
  NetworkBuilder builder(*operation, {}, false);
  const NetworkTensor value = builder.Value("x");
  EXPECT_EQ(value.blocks.block, 16);
  EXPECT_EQ(builder.steps().size(), 1u);
  EXPECT_EQ(builder.Value("x").buffer, value.buffer);
  EXPECT_EQ(builder.steps().size(), 1u);
}

TEST(NetworkBuilder, AValueIsConvertedOnceToTheDtypeOfAGroup) {
  const auto operation = OperationOf(
      "input x\nparameter w [1, 4]\na = read(w)\nb = add(x, a)\n"
      "c = mul(b, b)\noutput c\n",
      {{3, 4}}, ProgramPart::kForward, DataType::kBF16);
  NetworkBuilder builder(*operation, {}, false);
  builder.BeginForwardOf("b", DataType::kF32);
  const BufferId wide = builder.AddValue("b").buffer;
  EXPECT_EQ(builder.DtypeOf("b"), DataType::kF32);
  EXPECT_EQ(builder.Value("b", Form::kRows).buffer, wide);
  builder.BeginForwardOf("c", DataType::kBF16);
  const NetworkTensor narrow = builder.Value("b", Form::kRows);
  EXPECT_EQ(narrow.blocks.dtype, DataType::kBF16);
  EXPECT_NE(narrow.buffer, wide);
  EXPECT_EQ(builder.Value("b", Form::kRows).buffer, narrow.buffer);
  EXPECT_EQ(builder.steps().size(), 1U);
  EXPECT_EQ(builder.DtypeOf("x"), DataType::kBF16);
}

TEST(NetworkBuilder, ATapeHasACopyOfTheInput) {
  const auto operation = TwoLayers(ProgramPart::kForwardTape);
  NetworkBuilder builder(*operation, {}, true);
  const BufferId kept = builder.InputBuffer("x");
  EXPECT_EQ(builder.buffers()[kept].area, Area::kOwn);
  BuffersOf buffers(builder);
  buffers.SetOperand<float>(0, {3, 4});
  buffers.Run();
  EXPECT_THAT(buffers.Get<float>(kept), ElementsAre(3, 4));
}

TEST(NetworkBuilder, LaterStepsReadAStatisticThatAStepHasWritten) {
  const auto operation = OperationOf(
      "input x\nparameter m [8] fixed\nparameter v [8] fixed\n"
      "a = batch_norm(x, none, none, m, v, training=true)\noutput a\n",
      {{2, 8, 3}});
  NetworkBuilder builder(*operation, {}, false);
  const BufferId before = builder.Parameter("m");
  const BufferId after = builder.NewStatistic("m");
  EXPECT_EQ(PositionOf(builder, before, Area::kOperand), 1u);
  // After the one fetched value.
  EXPECT_EQ(PositionOf(builder, after, Area::kResult), 1u);
  EXPECT_EQ(builder.Parameter("m"), after);
  EXPECT_TRUE(builder.Wanted()[after]);
  EXPECT_FALSE(builder.LastingParameters()[before]);
}

}  // namespace
}  // namespace convgrad::onednn
