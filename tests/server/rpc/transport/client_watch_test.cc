#include "server/rpc/transport/client_watch.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(ClientWatch, TimeFollowsFromBytes) {
  const ClientWatch watch(absl::Seconds(10), 1000);
  EXPECT_EQ(watch.AllowedFor(0), absl::Seconds(10));
  EXPECT_EQ(watch.AllowedFor(2500), absl::Seconds(12.5));
  EXPECT_EQ(watch.TimeFor(2500), absl::Seconds(2.5));
}

TEST(ClientWatch, NoRateIsNoLimit) {
  const ClientWatch watch(absl::Seconds(10), 0);
  EXPECT_EQ(watch.AllowedFor(1), absl::InfiniteDuration());
}

TEST(ClientWatch, GivesUpOnceWhatIsOver) {
  ClientWatch watch(absl::Seconds(10), 1000);
  int given_up = 0;
  const uint64_t id =
      watch.Add([&] { ++given_up; }, kStart + absl::Seconds(10));
  watch.Add([&] { given_up += 100; }, kStart + absl::Seconds(11));
  watch.Expire(kStart + absl::Seconds(9));
  EXPECT_EQ(given_up, 0);
  watch.Expire(kStart + absl::Seconds(10));
  watch.Expire(kStart + absl::Seconds(10));
  EXPECT_EQ(given_up, 1);
  EXPECT_FALSE(watch.Remove(id));
}

TEST(ClientWatch, WaitsForEverUntilThereIsALimit) {
  ClientWatch watch(absl::Seconds(10), 1000);
  bool given_up = false;
  const uint64_t id = watch.Add([&] { given_up = true; });
  watch.Expire(kStart + absl::Hours(1));
  EXPECT_FALSE(given_up);
  watch.SetLimit(id, kStart);
  watch.Expire(kStart);
  EXPECT_TRUE(given_up);
  watch.SetLimit(id, kStart);  // Too late, without effect.
}

class StandingStillTest : public testing::Test {
 protected:
  // Starts a wait of at most an hour, and checks each second until `seconds`
  // are over. Each second brings `rate` bytes.
  void Begin() {
    watch_.Add([this] { given_up_ = true; }, kStart + absl::Hours(1),
               [this] { return bytes_; });
    watch_.Expire(kStart);
  }
  void Pass(int seconds, int64_t rate) {
    for (int i = 0; i < seconds; ++i) {
      bytes_ += rate;
      watch_.Expire(kStart + absl::Seconds(++seconds_));
    }
  }

  ClientWatch watch_{absl::Seconds(10), 1000};
  bool given_up_ = false;
  int64_t bytes_ = 100;
  int seconds_ = 0;
};

TEST_F(StandingStillTest, EndsAWaitBeforeItsTime) {
  Begin();
  Pass(9, 0);
  EXPECT_FALSE(given_up_);
  Pass(1, 0);
  EXPECT_TRUE(given_up_);
}

TEST_F(StandingStillTest, IsNotWhatTheLeastRateIs) {
  Begin();
  Pass(1000, 1001);
  EXPECT_FALSE(given_up_);
  Pass(20, 0);
  EXPECT_TRUE(given_up_);
}

TEST_F(StandingStillTest, EndsWhatIsBelowTheLeastRate) {
  Begin();
  Pass(19, 500);
  EXPECT_FALSE(given_up_);
  Pass(1, 500);
  EXPECT_TRUE(given_up_);
}

TEST_F(StandingStillTest, IsNotSavedByBytesLongAgo) {
  Begin();
  Pass(1, 1000000);
  Pass(20, 0);
  EXPECT_TRUE(given_up_);
}

TEST_F(StandingStillTest, IsNotWhatNobodyCounts) {
  bytes_ = 0;
  Begin();
  Pass(3000, 0);
  EXPECT_FALSE(given_up_);
}

TEST(ClientWatch, ForgetsWhatWasRemoved) {
  ClientWatch watch(absl::Seconds(10), 1000);
  const uint64_t id = watch.Add([] { FAIL(); }, kStart);
  EXPECT_TRUE(watch.Remove(id));
  EXPECT_FALSE(watch.Remove(id));
  watch.SetLimit(id, kStart);
  watch.Expire(kStart);
}

TEST(ClientWatch, WhatIsGivenUpMayComeBack) {
  ClientWatch watch(absl::Seconds(10), 1000);
  int given_up = 0;
  watch.Add(
      [&] {
        watch.Add([&] { ++given_up; }, kStart);
        ++given_up;
      },
      kStart);
  watch.Expire(kStart);
  EXPECT_EQ(given_up, 1);
  watch.Expire(kStart);
  EXPECT_EQ(given_up, 2);
}

}  // namespace
}  // namespace convgrad
