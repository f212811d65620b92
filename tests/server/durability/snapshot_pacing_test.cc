#include "server/durability/snapshot_pacing.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(SnapshotPacing, ASessionIsDueWhenItsOldestChangeIsOld) {
  const SnapshotPacing pacing(absl::Seconds(60));
  EXPECT_FALSE(pacing.IsDue("a", kStart, kStart + absl::Seconds(59)));
  EXPECT_TRUE(pacing.IsDue("a", kStart, kStart + absl::Seconds(60)));
  EXPECT_FALSE(pacing.IsDue("a", absl::InfiniteFuture(), kStart));
}

TEST(SnapshotPacing, WritingTakesAShareOfTheTime) {
  SnapshotPacing pacing(absl::Seconds(60));
  const absl::Duration writing = absl::Seconds(7);
  pacing.OnUnasked(kStart, kStart + writing);
  const absl::Time free = kStart + writing / SnapshotPacing::kShare;
  EXPECT_EQ(free, kStart + absl::Seconds(200));
  // The share is that of all sessions together.
  EXPECT_FALSE(pacing.IsDue("b", kStart, free - absl::Seconds(1)));
  EXPECT_TRUE(pacing.IsDue("b", kStart, free + absl::Nanoseconds(1)));
}

TEST(SnapshotPacing, AFailureIsTriedAgainLater) {
  SnapshotPacing pacing(absl::Seconds(60));
  pacing.OnEnd("a", false, kStart);
  EXPECT_TRUE(pacing.HasFailed("a"));
  const absl::Time changed = absl::InfinitePast();
  EXPECT_FALSE(pacing.IsDue("a", changed, kStart + absl::Seconds(9)));
  EXPECT_TRUE(pacing.IsDue("b", changed, kStart + absl::Seconds(9)));
  // A client asks meanwhile.
  pacing.OnEnd("a", false, kStart + absl::Seconds(5));
  EXPECT_TRUE(pacing.IsDue("a", changed, kStart + absl::Seconds(10)));
  pacing.OnEnd("a", true, kStart);
  EXPECT_FALSE(pacing.HasFailed("a"));
}

}  // namespace
}  // namespace convgrad
