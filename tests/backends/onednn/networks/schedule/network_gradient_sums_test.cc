#include "backends/onednn/networks/schedule/network_gradient_sums.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

using testing::ElementsAre;

TEST(DisjointGroups, PutsPartsThatDoNotOverlapTogether) {
  EXPECT_THAT(DisjointGroups({}), ElementsAre());
  // The three thirds of a projection, in any order.
  EXPECT_THAT(DisjointGroups({{0, 2}, {0, 0}, {0, 1}}),
              ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(DisjointGroups({{1, 3, 4}, {1, 0, 3}, {1, 7, 1}}),
              ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(DisjointGroups, SeparatesPartsThatOverlap) {
  EXPECT_THAT(DisjointGroups({{0, 0, 4}, {0, 3, 4}}),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(DisjointGroups({{0, 3, 4}, {0, 0, 4}}),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(DisjointGroups({{0, 0, 9}, {0, 4, 1}}),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(DisjointGroups({{0, 4, 1}, {0, 4, 1}, {0, 5, 1}}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  // Parts of other axes may overlap.
  EXPECT_THAT(DisjointGroups({{0, 0}, {1, 1}}),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(DisjointGroups, KnowsStepsWithOtherRemainders) {
  EXPECT_THAT(DisjointGroups({{0, 0, 5, 2}, {0, 1, 5, 2}, {0, 4, 2, 2}}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(DisjointGroups({{0, 0, 5, 2}, {0, 1, 3, 3}}),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
}

// Returns a tensor of rows whose elements are `first`, `first` + 1, ...
NetworkTensor Counted(const Dims& dims, float first, Schedule* schedule) {
  NetworkTensor tensor = TensorLike(dims, DataType::kF32, Form::kRows, 16);
  tensor.buffer = schedule->AddBuffer(tensor.blocks.bytes());
  schedule->Add(
      {.writes = {tensor.buffer}, .function = [=](const RunContext& context) {
         auto* to = context.Write<float>(tensor.buffer);
         for (int64_t i = 0; i < tensor.blocks.size(); ++i) {
           to[i] = first + static_cast<float>(i);
         }
       }});
  return tensor;
}

TEST(AddParts, WritesPartsWhereTheyBelongAndZerosElsewhere) {
  Schedule schedule;
  const NetworkTensor whole =
      TensorLike({2, 4}, DataType::kF32, Form::kRows, 16);
  const std::vector<PartGradient> parts = {
      {{1, 3}, 3, {4, 1}, Counted({2, 1}, 1, &schedule)},
      {{1, 0, 2}, 0, {4, 1}, Counted({2, 2}, 10, &schedule)},
      {{1, 1}, 1, {4, 1}, Counted({2, 1}, 100, &schedule)},
      {{0, 0}, 0, {4, 1}, Counted({1, 4}, 1000, &schedule)},
      {{0, 1}, 4, {4, 1}, Counted({1, 4}, 2000, &schedule)}};
  const std::vector<NetworkTensor> gradients =
      AddParts(parts, whole, &schedule);
  ASSERT_EQ(gradients.size(), 3);
  BuffersOf buffers(schedule);
  buffers.Run();
  EXPECT_THAT(buffers.Get<float>(gradients[0].buffer),
              ElementsAre(10, 11, 0, 1, 12, 13, 0, 2));
  EXPECT_THAT(buffers.Get<float>(gradients[1].buffer),
              ElementsAre(0, 100, 0, 0, 0, 101, 0, 0));
  EXPECT_THAT(buffers.Get<float>(gradients[2].buffer),
              ElementsAre(1000, 1001, 1002, 1003, 2000, 2001, 2002, 2003));
}

TEST(AddSums, AddsAllTensors) {
  Schedule schedule;
  const NetworkTensor a = Counted({1, 3}, 1, &schedule);
  const NetworkTensor b = Counted({1, 3}, 10, &schedule);
  const NetworkTensor c = Counted({1, 3}, 100, &schedule);
  const BufferId sum = schedule.AddBuffer(a.blocks.bytes());
  const BufferId copy = schedule.AddBuffer(a.blocks.bytes());
  AddSums(sum, {a.buffer, b.buffer, c.buffer}, a.blocks, &schedule);
  AddSums(copy, {a.buffer}, a.blocks, &schedule);
  BuffersOf buffers(schedule);
  buffers.Run();
  EXPECT_THAT(buffers.Get<float>(sum), ElementsAre(111, 114, 117));
  EXPECT_THAT(buffers.Get<float>(copy), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace convgrad::onednn
