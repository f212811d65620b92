#include "server/snapshots/part_plan.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/snapshots/images.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20;

ImageItem ItemOf(const std::string& name, int64_t bytes,
                 int64_t element_bytes = 1) {
  const std::string dtype = absl::StrCat("U", 8 * element_bytes);
  return {name,
          dtype,
          element_bytes,
          {bytes / element_bytes},
          BytesOf(std::string(bytes, 'x'))};
}

// Returns the plan as the parts that the next generation finds.
std::vector<StoredPart> Stored(const std::vector<ImageItem>& items,
                               const std::vector<PlannedPart>& plan) {
  std::vector<StoredPart> parts;
  for (const PlannedPart& planned : plan) {
    StoredPart& part = parts.emplace_back();
    part.sha256 = std::string(1, static_cast<char>('a' + parts.size()));
    for (const size_t i : planned.items) {
      part.items.push_back(StoredItemOf(items[i]));
      part.bytes += items[i].bytes();
    }
  }
  return parts;
}

std::vector<std::vector<size_t>> ItemsIn(const std::vector<PlannedPart>& plan) {
  std::vector<std::vector<size_t>> items;
  for (const PlannedPart& part : plan) items.push_back(part.items);
  return items;
}

TEST(PartPlanTest, PutsSmallItemsTogether) {
  const std::vector<ImageItem> items = {
      ItemOf("a", 3 * kMiB), ItemOf("b", 4 * kMiB), ItemOf("c", 2 * kMiB),
      ItemOf("d", 1), ItemOf("e", 0)};
  EXPECT_THAT(
      ItemsIn(PlanParts(items, {})),
      ElementsAre(ElementsAre(1), ElementsAre(0, 2), ElementsAre(3, 4)));
  EXPECT_THAT(PlanParts({}, {}), IsEmpty());
}

TEST(PartPlanTest, AlignsItemsToTheirElements) {
  const std::vector<ImageItem> items = {ItemOf("a", 3), ItemOf("b", 6, 2),
                                        ItemOf("c", 8, 8), ItemOf("d", 4, 4),
                                        ItemOf("A", 8, 8)};
  const auto plan = PlanParts(items, {});
  EXPECT_THAT(ItemsIn(plan), ElementsAre(ElementsAre(4, 2, 3, 1, 0)));
}

TEST(PartPlanTest, UsesUnchangedPartsAgain) {
  std::vector<ImageItem> items = {ItemOf("a", 5 * kMiB), ItemOf("b", 6 * kMiB)};
  const auto stored = Stored(items, PlanParts(items, {}));
  items[1] = ItemOf("b", 6 * kMiB);  // Other bytes, even if they are equal.
  const auto plan = PlanParts(items, stored);
  ASSERT_THAT(ItemsIn(plan), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(plan[0].stored, &stored[0]);
  EXPECT_EQ(plan[1].stored, nullptr);
}

TEST(PartPlanTest, SeparatesUnchangedItemsFromChangedOnes) {
  std::vector<ImageItem> items = {ItemOf("a", kMiB), ItemOf("b", kMiB),
                                  ItemOf("c", kMiB)};
  const auto first = Stored(items, PlanParts(items, {}));
  ASSERT_EQ(first.size(), 1);
  items[1] = ItemOf("b", kMiB);
  const auto plan = PlanParts(items, first);
  EXPECT_THAT(ItemsIn(plan), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  EXPECT_EQ(plan[0].stored, nullptr);
  const auto second = Stored(items, plan);
  items[1] = ItemOf("b", kMiB);
  EXPECT_EQ(PlanParts(items, second)[0].stored, &second[0]);
}

TEST(PartPlanTest, PutsSmallUnchangedPartsTogether) {
  std::vector<ImageItem> items = {ItemOf("a", 100)};
  std::vector<StoredPart> stored;
  for (int i = 0; i < 5; ++i) {
    const auto plan = PlanParts(items, stored);
    EXPECT_LE(plan.size(), 2);
    stored = Stored(items, plan);
    items.push_back(ItemOf(std::string(1, static_cast<char>('b' + i)), 100));
  }
}

TEST(PartPlanTest, DropsPartsOfDroppedItems) {
  std::vector<ImageItem> items = {ItemOf("a", 2 * kMiB), ItemOf("b", 2 * kMiB)};
  const auto stored = Stored(items, PlanParts(items, {}));
  items.pop_back();
  const auto plan = PlanParts(items, stored);
  EXPECT_THAT(ItemsIn(plan), ElementsAre(ElementsAre(0)));
  EXPECT_EQ(plan[0].stored, nullptr);
}

// Each changes what makes the item another one.
TEST(PartPlanTest, TakesOtherItemsForChanged) {
  const std::vector<ImageItem> items = {ItemOf("a", 4 * kMiB)};
  const auto stored = Stored(items, PlanParts(items, {}));
  const auto is_same = [&](const ImageItem& item) {
    return PlanParts({item}, stored)[0].stored != nullptr;
  };
  EXPECT_TRUE(is_same(items[0]));
  ImageItem other = items[0];
  other.name = "b";
  EXPECT_FALSE(is_same(other));
  other = items[0];
  other.dtype = "I8";
  EXPECT_FALSE(is_same(other));
  other = items[0];
  other.shape = {2, 2 * kMiB};
  EXPECT_FALSE(is_same(other));
  other = items[0];
  other.data.bytes.remove_suffix(1);
  EXPECT_FALSE(is_same(other));
  other = items[0];
  other.data.bytes.remove_prefix(1);
  EXPECT_FALSE(is_same(other));
  other = items[0];
  other.data.owner = std::make_shared<int>(1);
  EXPECT_FALSE(is_same(other));
}

TEST(PartPlanTest, TakesBytesWithoutOwnerForChanged) {
  std::vector<ImageItem> items = {ItemOf("a", 4 * kMiB)};
  const auto kept = std::exchange(items[0].data.owner, nullptr);
  const auto stored = Stored(items, PlanParts(items, {}));
  EXPECT_EQ(PlanParts(items, stored)[0].stored, nullptr);
}

TEST(PartPlanTest, TakesAnOwnerAtTheAddressOfAnEndedOneForAnother) {
  std::string bytes(4 * kMiB, 'x');
  const auto item_of_new_owner = [&] {
    ImageItem item = ItemOf("a", 0);
    item.shape = {4 * kMiB};
    item.data = {
        std::shared_ptr<const void>(&bytes, [](const void*) {}),
        {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}};
    return item;
  };
  std::vector<ImageItem> items = {item_of_new_owner()};
  const auto stored = Stored(items, PlanParts(items, {}));
  items.clear();  // The first owner ends.
  items = {item_of_new_owner()};
  EXPECT_EQ(PlanParts(items, stored)[0].stored, nullptr);
}

TEST(PartPlanTest, MakesAFileOfSafetensors) {
  const std::vector<ImageItem> items = {ItemOf("a", 3), ItemOf("b", 4, 4)};
  const PartContent content = MakePart(items, {1, 0});
  ASSERT_EQ(content.pieces.size(), 3);
  EXPECT_EQ(content.bytes, 128 + 7);
  EXPECT_EQ(content.sha256, DigestOf(content.pieces));
  EXPECT_EQ(content.pieces[1].data(), items[1].data.bytes.data());
  EXPECT_EQ(content.pieces[2].data(), items[0].data.bytes.data());
}

TEST(PartPlanTest, GroupsItemsByTheirPart) {
  const std::vector<ImageItem> items = {ItemOf("b", 1), ItemOf("a", 1),
                                        ItemOf("c", 8, 8)};
  EXPECT_THAT(ItemsByPart(items, {1, 1, 1}, 3),
              ElementsAre(IsEmpty(), ElementsAre(2, 1, 0), IsEmpty()));
}

}  // namespace
}  // namespace convgrad
