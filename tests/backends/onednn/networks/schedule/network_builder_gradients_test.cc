// Tests where a network's gradients are, and how gradients of one tensor are
// added.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/onednn/networks/schedule/network_builder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

using testing::ElementsAre;

class GradientsTest : public testing::Test {
 protected:
  // Adds a gradient of `value`, which a step fills with `fill`.
  BufferId Add(const std::string& value, float fill) {
    return Fill(builder_.NewGradient(value).buffer, fill);
  }
  BufferId Fill(BufferId buffer, float fill) {
    const int64_t count = builder_.buffers()[buffer].bytes / 4;
    builder_.Add(
        {.writes = {buffer}, .function = [=](const RunContext& context) {
           std::fill_n(context.Write<float>(buffer), count, fill);
         }});
    return buffer;
  }
  std::vector<float> ValuesOf(BufferId buffer) {
    BuffersOf buffers(builder_);
    buffers.Run();
    return buffers.Get<float>(buffer);
  }
  size_t steps() { return builder_.steps().size(); }

  const std::shared_ptr<const ProgramOperation> operation_ =
      TwoLayers(ProgramPart::kTrain);
  NetworkBuilder builder_{*operation_, {}, false};
};

TEST_F(GradientsTest, AValueThatNoStepUsesHasNone) {
  EXPECT_FALSE(builder_.HasGradient("a"));
  Add("a", 1);
  EXPECT_TRUE(builder_.HasGradient("a"));
}

TEST_F(GradientsTest, OneIsTakenAsItIs) {
  const BufferId only = Add("a", 1);
  const size_t steps_before = steps();
  EXPECT_EQ(builder_.GradientOf("a").buffer, only);
  EXPECT_EQ(builder_.GradientPairOf("a"), std::pair(only, kNoBuffer));
  EXPECT_EQ(steps(), steps_before);
}

TEST_F(GradientsTest, AllAreAddedOnce) {
  Add("a", 1);
  Add("a", 10);
  Add("a", 100);
  Add("c", 1000);
  const BufferId sum = builder_.GradientOf("a").buffer;
  const size_t steps_before = steps();
  EXPECT_EQ(builder_.GradientOf("a").buffer, sum);
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
  BuffersOf buffers(builder_);
  buffers.Run();
  const auto& all = builder_.buffers();
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
  BuffersOf buffers(builder_);
  buffers.Run();
  const auto& all = builder_.buffers();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].area != Area::kResult) continue;
    if (all[i].index == 0 || all[i].index == 3) continue;
    EXPECT_THAT(buffers.Get<float>(static_cast<BufferId>(i)), ElementsAre(0, 0))
        << all[i].index;
  }
}

TEST(Gradients, HaveTheDtypeOfTheirValue) {
  const auto operation = TwoLayers(ProgramPart::kTrain, DataType::kBF16);
  NetworkBuilder builder(*operation, {}, false);
  builder.BeginForwardOf("a", DataType::kF32);
  builder.BeginForwardOf("c", DataType::kBF16);
  builder.BeginBackwardOf("c");
  const BufferId narrow = builder.NewGradient("a").buffer;
  EXPECT_EQ(builder.buffers()[narrow].bytes, 4);
  builder.BeginBackwardOf("a");
  EXPECT_EQ(builder.dtype(), DataType::kF32);
  const BufferId wide = builder.GradientOf("a").buffer;
  EXPECT_NE(wide, narrow);
  EXPECT_EQ(builder.buffers()[wide].bytes, 8);
}

}  // namespace
}  // namespace convgrad::onednn
