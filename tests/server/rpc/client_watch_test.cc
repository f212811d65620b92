#include "server/rpc/client_watch.h"

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
  watch.SetLimit(id, kStart);  // too late, and harmless
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
