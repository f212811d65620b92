// Tests which changes of a durable session the client keeps.
#include "client/cpp/sessions/replay.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Room for four changes of 1 KiB, beside the 1 KiB that each takes.
constexpr int64_t kLimit = 8 << 10;

Replay::Kept Change(const std::string& call_id) {
  return {
      .change = {.send =
                     [](grpc::ClientContext*) { return grpc::ByteBuffer(); },
                 .bytes = 1 << 10},
      .call_id = call_id};
}

Replay WithChanges(int64_t first, int64_t last) {
  Replay replay(first - 1, kLimit);
  for (int64_t i = first; i <= last; ++i) replay.Add(i, Change(""));
  return replay;
}

std::vector<int64_t> NumbersAfter(int64_t number, Replay replay) {
  std::vector<int64_t> numbers;
  for (const auto& [sequence, kept] : replay.TakeAfter(number)) {
    numbers.push_back(sequence);
  }
  return numbers;
}

TEST(ReplayTest, KeepsWhatIsNotOnDisk) {
  Replay replay(2, kLimit);
  replay.Add(2, Change("on disk"));
  replay.Add(3, Change("third"));
  replay.Add(4, {});  // without bytes of its own
  EXPECT_FALSE(replay.Has(2));
  EXPECT_FALSE(replay.Has(4));
  EXPECT_EQ(replay.newest(), 3);
  const auto taken = replay.TakeAfter(2);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken.at(3).call_id, "third");
  EXPECT_EQ(replay.newest(), 0);
}

TEST(ReplayTest, DropsWhatIsOnDisk) {
  Replay replay = WithChanges(1, 4);
  replay.NoteDurable(2);
  replay.NoteDurable(1);  // late
  EXPECT_EQ(replay.durable_number(), 2);
  EXPECT_THAT(NumbersAfter(0, replay), ElementsAre(3, 4));
  EXPECT_THAT(NumbersAfter(3, replay), ElementsAre(4));
}

TEST(ReplayTest, AsksForASnapshotBeforeItIsFull) {
  EXPECT_FALSE(WithChanges(1, 3).needs_snapshot());
  Replay replay = WithChanges(1, 4);
  EXPECT_TRUE(replay.needs_snapshot());
  EXPECT_FALSE(replay.is_full());
  replay.BeginSaving();
  EXPECT_FALSE(replay.needs_snapshot());
  EXPECT_FALSE(replay.is_full());
  replay.Add(5, Change(""));
  EXPECT_TRUE(replay.is_full());
  replay.NoteDurable(1);
  EXPECT_FALSE(replay.is_full());
}

TEST(ReplayTest, DropsAllIfTheServerCantWrite) {
  Replay replay = WithChanges(1, 4);
  replay.BeginSaving();
  replay.EndSaving(absl::InternalError("no space"));
  EXPECT_EQ(replay.newest(), 4);  // within the limit
  replay.Add(5, Change(""));
  replay.BeginSaving();
  replay.EndSaving(absl::UnavailableError("away"));
  EXPECT_EQ(replay.newest(), 5);
  replay.BeginSaving();
  replay.EndSaving(absl::InternalError("no space"));
  EXPECT_THAT(NumbersAfter(0, replay), IsEmpty());
  EXPECT_FALSE(replay.needs_snapshot());
}

TEST(ReplayTest, DropsAllIfNoSnapshotHelps) {
  Replay replay = WithChanges(1, 8);
  replay.BeginSaving();
  replay.EndSaving(absl::OkStatus());
  EXPECT_EQ(replay.newest(), 8);
  replay.Add(9, Change(""));
  replay.BeginSaving();
  replay.EndSaving(absl::AbortedError("a change failed"));
  EXPECT_EQ(replay.newest(), 9);
  replay.BeginSaving();
  replay.EndSaving(absl::OkStatus());
  EXPECT_EQ(replay.newest(), 0);
}

}  // namespace
}  // namespace convgrad
