// Tests where a network's operands, gradients and results are, and how
// gradients of one tensor are added.
#include "backends/onednn/networks/schedule/network_builder.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

using testing::ElementsAre;

// Its inputs are x and t, its parameters w (used twice), b and m (fixed).
constexpr char kTwoLayers[] =
    "input x\ninput t\n"
    "parameter w [2, 2, 1]\nparameter b [2]\nparameter m [2, 2, 1] fixed\n"
    "a = conv(x, w, b)\nc = conv(a, w)\nd = conv(c, m)\ny = mse(d, t)\n"
    "output y\n";

std::shared_ptr<const ProgramOperation> TwoLayers(ProgramPart part) {
  return OperationOf(kTwoLayers, {{1, 2, 1}, {1, 2, 1}}, part);
}

// Returns an operand or result's position.
size_t PositionOf(NetworkBuilder& builder, BufferId buffer, Area area) {
  const Buffer& found = builder.schedule().buffers()[buffer];
  EXPECT_EQ(found.area, area);
  return found.index;
}

class GradientsTest : public testing::Test {
 protected:
  // Adds a gradient of `value`, which a step fills with `fill`.
  BufferId Add(const std::string& value, float fill) {
    return Fill(builder_.NewGradient(value), fill);
  }
  BufferId Fill(BufferId buffer, float fill) {
    const int64_t count = builder_.schedule().buffers()[buffer].bytes / 4;
    builder_.schedule().Add(
        {.writes = {buffer}, .function = [=](const RunContext& context) {
           std::fill_n(context.Write<float>(buffer), count, fill);
         }});
    return buffer;
  }
  std::vector<float> ValuesOf(BufferId buffer) {
    BuffersOf buffers(builder_.schedule());
    buffers.Run();
    return buffers.Get<float>(buffer);
  }
  size_t steps() { return builder_.schedule().steps().size(); }

  const std::shared_ptr<const ProgramOperation> operation_ =
      TwoLayers(ProgramPart::kTrain);
  NetworkBuilder builder_{*operation_, {}, false};
};

TEST_F(GradientsTest, AValueThatNoStepUsesHasNone) {
  EXPECT_EQ(builder_.GradientOf("a"), kNoBuffer);
  EXPECT_EQ(builder_.GradientPairOf("a"), std::pair(kNoBuffer, kNoBuffer));
}

TEST_F(GradientsTest, OneIsTakenAsItIs) {
  const BufferId only = Add("a", 1);
  const size_t steps_before = steps();
  EXPECT_EQ(builder_.GradientOf("a"), only);
  EXPECT_EQ(builder_.GradientPairOf("a"), std::pair(only, kNoBuffer));
  EXPECT_EQ(steps(), steps_before);
}

TEST_F(GradientsTest, AllAreAddedOnce) {
  Add("a", 1);
  Add("a", 10);
  Add("a", 100);
  Add("c", 1000);
  const BufferId sum = builder_.GradientOf("a");
  const size_t steps_before = steps();
  EXPECT_EQ(builder_.GradientOf("a"), sum);
  EXPECT_EQ(steps(), steps_before);
  EXPECT_THAT(ValuesOf(sum), ElementsAre(111, 111));
}

TEST_F(GradientsTest, ThePairLeavesTheLastAdditionToItsCaller) {
  const BufferId first = Add("a", 1);
  const BufferId second = Add("a", 10);
  const size_t steps_before = steps();
  EXPECT_EQ(builder_.GradientPairOf("a"), std::pair(first, second));
  EXPECT_EQ(steps(), steps_before);
  Add("a", 100);
  const auto [sum, none] = builder_.GradientPairOf("a");
  EXPECT_EQ(none, kNoBuffer);
  EXPECT_THAT(ValuesOf(sum), ElementsAre(111, 111));
}

// Results: y, then gradients of x, t, w and b; m is fixed.
TEST_F(GradientsTest, AParameterThatIsUsedOnceIsWrittenRightWhereItGoes) {
  const BufferId gradient = builder_.NewParameterGradient("b");
  EXPECT_EQ(PositionOf(builder_, gradient, Area::kResult), 4u);
}

TEST_F(GradientsTest, AParameterThatIsUsedTwiceIsSummedAtTheEnd) {
  Fill(builder_.NewParameterGradient("w"), 1);
  Fill(builder_.NewParameterGradient("w"), 10);
  builder_.EndBackward();
  BuffersOf buffers(builder_.schedule());
  buffers.Run();
  const auto& all = builder_.schedule().buffers();
  int results = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].area != Area::kResult || all[i].index != 3) continue;
    ++results;
    EXPECT_THAT(buffers.Get<float>(static_cast<BufferId>(i)),
                ElementsAre(11, 11, 11, 11));
  }
  EXPECT_EQ(results, 1);
}

TEST_F(GradientsTest, WhatNoGradientReachesIsZero) {
  Fill(builder_.NewParameterGradient("w"), 1);
  builder_.EndBackward();
  BuffersOf buffers(builder_.schedule());
  buffers.Run();
  const auto& all = builder_.schedule().buffers();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].area != Area::kResult) continue;
    if (all[i].index == 0 || all[i].index == 3) continue;
    EXPECT_THAT(buffers.Get<float>(static_cast<BufferId>(i)), ElementsAre(0, 0))
        << all[i].index;
  }
}

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
  EXPECT_EQ(builder.schedule().steps().size(), 1u);
  EXPECT_EQ(builder.Value("x").buffer, value.buffer);
  EXPECT_EQ(builder.schedule().steps().size(), 1u);
}

TEST(NetworkBuilder, ATapeHasACopyOfTheInput) {
  const auto operation = TwoLayers(ProgramPart::kForwardTape);
  NetworkBuilder builder(*operation, {}, true);
  const BufferId kept = builder.InputBuffer("x");
  EXPECT_EQ(builder.schedule().buffers()[kept].area, Area::kOwn);
  BuffersOf buffers(builder.schedule());
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
