// Tests which steps of a program are fused.
#include "backends/onednn/networks/schedule/network_groups.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Groups {
  // The last value of each group.
  std::vector<std::string> results;
  std::vector<std::string> hidden;
};

// The steps may use x, m, v and, if they have a convolution, w.
Groups GroupsOf(const std::string& steps, Fusion fusion = Fusion::kOfTraining) {
  const std::string declared =
      "input x\n"
      "parameter m [8] fixed\n"
      "parameter v [8] fixed\n";
  const bool has_weight = steps.find("conv") != std::string::npos;
  const auto program = ParseProgram(
      declared + (has_weight ? "parameter w [8, 8, 1, 1]\n" : "") + steps);
  EXPECT_TRUE(program.ok()) << program.status();
  const auto shapes = InferShapes(*program, {{2, 8, 4, 4}});
  EXPECT_TRUE(shapes.ok()) << shapes.status();
  Groups groups;
  for (const GroupSteps& group : FindGroups(*program, *shapes, fusion)) {
    groups.results.push_back(program->steps[group.last()].result);
  }
  groups.hidden = HiddenValues(*program, *shapes, fusion);
  return groups;
}

TEST(FindGroups, BatchNormTakesTheAddAndTheReluThatFollow) {
  const Groups groups = GroupsOf(
      "a = conv(x, w)\n"
      "b = batch_norm(a, none, none, m, v)\n"
      "c = add(b, x)\n"
      "d = relu(c)\n"
      "output d\n");
  EXPECT_THAT(groups.results, ElementsAre("a", "d"));
  EXPECT_THAT(groups.hidden, ElementsAre("b", "c"));
}

TEST(FindGroups, BatchNormTakesARelu6ButNotBehindAnAdd) {
  const Groups groups = GroupsOf(
      "a = batch_norm(x, none, none, m, v)\n"
      "b = relu6(a)\n"
      "c = batch_norm(b, none, none, m, v)\n"
      "d = add(c, x)\n"
      "e = relu6(d)\n"
      "output e\n");
  EXPECT_THAT(groups.results, ElementsAre("b", "d", "e"));
  EXPECT_THAT(groups.hidden, ElementsAre("a", "c"));
}

TEST(FindGroups, OfTwoBatchNormsTheLaterOneTakesTheAdd) {
  const Groups groups = GroupsOf(
      "a = batch_norm(x, none, none, m, v)\n"
      "b = conv(x, w)\n"
      "c = batch_norm(b, none, none, m, v)\n"
      "d = add(c, a)\n"
      "e = relu(d)\n"
      "output e\n");
  EXPECT_THAT(groups.results, ElementsAre("a", "b", "e"));
  EXPECT_THAT(groups.hidden, ElementsAre("c", "d"));
}

TEST(FindGroups, WithoutFusingEachStepIsByItself) {
  const Groups groups = GroupsOf(
      "a = conv(x, w)\n"
      "b = batch_norm(a, none, none, m, v)\n"
      "c = relu(b)\n"
      "output c\n",
      Fusion::kNone);
  EXPECT_THAT(groups.results, ElementsAre("a", "b", "c"));
  EXPECT_THAT(groups.hidden, IsEmpty());
}

TEST(NamesOf, AGroupHasItsStepsInTheirOrder) {
  const auto program = ParseProgram(
      "input x\nparameter w [8, 8, 1, 1]\n"
      "a = conv(x, w)\nb = batch_norm(a, training=true)\nc = add(x, b)\n"
      "d = relu(c)\noutput d\n");
  ASSERT_TRUE(program.ok()) << program.status();
  const auto shapes = InferShapes(*program, {{2, 8, 4, 4}});
  EXPECT_THAT(
      NamesOf(*program, FindGroups(*program, *shapes, Fusion::kOfTraining)),
      ElementsAre(ElementsAre("a"), ElementsAre("b", "c", "d")));
}

TEST(FindGroups, AnOutputIsNeverHidden) {
  const Groups groups = GroupsOf(
      "a = batch_norm(x, none, none, m, v)\n"
      "b = relu(a)\n"
      "output b\n"
      "output a\n");
  EXPECT_THAT(groups.results, ElementsAre("a", "b"));
  EXPECT_THAT(groups.hidden, IsEmpty());
}

TEST(FindGroups, AValueThatIsUsedTwiceIsNeverHidden) {
  const Groups groups = GroupsOf(
      "a = batch_norm(x, none, none, m, v)\n"
      "b = relu(a)\n"
      "c = add(a, b)\n"
      "d = relu(c)\n"
      "output d\n");
  EXPECT_THAT(groups.results, ElementsAre("a", "b", "d"));
  EXPECT_THAT(groups.hidden, ElementsAre("c"));
}

TEST(FindGroups, AnAddOfAValueToItselfIsNoPartOfABatchNorm) {
  const Groups groups = GroupsOf(
      "a = batch_norm(x, none, none, m, v)\n"
      "b = add(a, a)\n"
      "output b\n");
  EXPECT_THAT(groups.results, ElementsAre("a", "b"));
}

TEST(FindGroups, AtInferenceAConvolutionIsPartOfWhatFollows) {
  const std::string steps =
      "a = conv(x, w)\n"
      "b = batch_norm(a, none, none, m, v)\n"
      "c = add(b, x)\n"
      "d = relu(c)\n"
      "e = conv(d, w)\n"
      "f = relu6(e)\n"
      "output f\n";
  const Groups groups = GroupsOf(steps, Fusion::kOfInference);
  EXPECT_THAT(groups.results, ElementsAre("d", "f"));
  EXPECT_THAT(groups.hidden, ElementsAre("a", "b", "c", "e"));
  EXPECT_THAT(GroupsOf(steps).hidden, ElementsAre("b", "c"));
}

TEST(FindGroups, AtInferenceAConvolutionTakesOtherActivations) {
  const std::string steps =
      "a = conv(x, w)\n"
      "b = batch_norm(a, none, none, m, v)\n"
      "c = silu(b)\n"
      "d = conv(c, w)\n"
      "e = hardswish(d)\n"
      "f = conv(e, w)\n"
      "g = batch_norm(f, none, none, m, v)\n"
      "h = add(g, x)\n"
      "i = leaky_relu(h)\n"
      "j = batch_norm(i, none, none, m, v)\n"
      "k = silu(j)\n"
      "l = conv(k, w)\n"
      "n = gelu(l)\n"
      "output n\n";
  const Groups groups = GroupsOf(steps, Fusion::kOfInference);
  EXPECT_THAT(groups.results, ElementsAre("c", "e", "i", "j", "k", "l", "n"));
  EXPECT_THAT(groups.hidden, ElementsAre("a", "b", "d", "f", "g", "h"));
  EXPECT_THAT(GroupsOf(steps).hidden, ElementsAre("g"));
}

TEST(FindGroups, OfTwoConvolutionsBeforeAnAddTheLaterOneTakesIt) {
  const Groups groups = GroupsOf(
      "a = conv(x, w)\n"
      "b = conv(x, w)\n"
      "c = add(b, a)\n"
      "d = batch_norm(c, none, none, m, v)\n"
      "output d\n",
      Fusion::kOfInference);
  EXPECT_THAT(groups.results, ElementsAre("a", "c", "d"));
  EXPECT_THAT(groups.hidden, ElementsAre("b"));
}

TEST(FindGroups, WhatIsUsedTwiceOrNormedByItsBatchStaysAConvolution) {
  const Groups groups = GroupsOf(
      "a = conv(x, w)\n"
      "b = batch_norm(a, none, none, m, v, training=true)\n"
      "c = conv(b, w)\n"
      "d = relu(c)\n"
      "e = add(d, c)\n"
      "output e\n",
      Fusion::kOfInference);
  EXPECT_THAT(groups.results, ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(groups.hidden, IsEmpty());
}

}  // namespace
}  // namespace convgrad::onednn
