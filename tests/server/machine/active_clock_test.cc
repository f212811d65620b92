#include "server/machine/active_clock.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(ActiveClockTest, StandsStillWhileTheProcessDoes) {
  absl::Time now = absl::UnixEpoch();
  ActiveClock clock([&now] { return now; });
  for (int tick = 1; tick <= 20; ++tick) {
    now += absl::Milliseconds(500);
    EXPECT_EQ(clock.Now(), now);
    clock.Tick();
    EXPECT_EQ(clock.Now(), now);
  }
  const absl::Time before = now;
  now += absl::Hours(1);
  // A call may come before the next tick.
  EXPECT_EQ(clock.Now(), before + ActiveClock::kLongestGap);
  clock.Tick();
  EXPECT_EQ(clock.Now(), before + ActiveClock::kLongestGap);
  now += absl::Milliseconds(100);
  EXPECT_EQ(clock.Now(),
            before + ActiveClock::kLongestGap + absl::Milliseconds(100));
}

}  // namespace
}  // namespace convgrad
