// Tests which failures are retried, and how long the client waits.
#include "client/cpp/calls/retries.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(RetryPolicy, WaitsGrowUpToTheLongest) {
  RetryPolicy policy;
  policy.initial = absl::Milliseconds(100);
  policy.multiplier = 3;
  policy.longest = absl::Milliseconds(500);
  policy.jitter = 0;
  const absl::Status lost = absl::UnavailableError("");
  // A jitter of 0 counts as one in a billion.
  const auto rounded = [&](int attempts) {
    return absl::Trunc(*policy.DelayAfter(lost, attempts),
                       absl::Milliseconds(1));
  };
  EXPECT_EQ(rounded(1), absl::Milliseconds(100));
  EXPECT_EQ(rounded(2), absl::Milliseconds(300));
  EXPECT_EQ(rounded(3), absl::Milliseconds(500));
  EXPECT_EQ(rounded(19), absl::Milliseconds(500));
}

TEST(RetryPolicy, JitterLengthensWaitsWithinItsShare) {
  RetryPolicy policy;
  policy.initial = policy.longest = absl::Seconds(1);
  policy.jitter = 0.5;
  absl::Duration least = absl::InfiniteDuration(), most = absl::ZeroDuration();
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration delay = *policy.DelayAfter(absl::CancelledError(), 1);
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_GE(least, absl::Seconds(1));
  EXPECT_LT(least, absl::Seconds(1.1));
  EXPECT_GT(most, absl::Seconds(1.4));
  EXPECT_LE(most, absl::Seconds(1.5));
}

TEST(RetryPolicy, RepeatsOnlyWhatARepeatMayChange) {
  const RetryPolicy policy;
  EXPECT_TRUE(policy.DelayAfter(absl::UnavailableError(""), 1));
  EXPECT_TRUE(policy.DelayAfter(absl::CancelledError(""), 1));
  EXPECT_FALSE(policy.DelayAfter(absl::InvalidArgumentError(""), 1));
  EXPECT_FALSE(policy.DelayAfter(absl::DeadlineExceededError(""), 1));
  // The server gave no retry delay.
  EXPECT_FALSE(policy.DelayAfter(absl::ResourceExhaustedError(""), 1));
}

TEST(RetryPolicy, EndsAfterItsAttempts) {
  RetryPolicy policy;
  policy.max_attempts = 3;
  EXPECT_TRUE(policy.DelayAfter(absl::UnavailableError(""), 2));
  EXPECT_FALSE(policy.DelayAfter(absl::UnavailableError(""), 3));
}

// Returns the number of attempts of a call that silent servers take 60 ms of
// each, in place of the 45 ms that the policy waits.
int SilentAttempts(int strangers, const char* message) {
  RetryPolicy policy;
  policy.max_attempts = 10;
  policy.initial = policy.longest = absl::Milliseconds(5);
  int attempts = 0;
  policy
      .Persist(
          absl::InfiniteFuture(),
          [&]() -> absl::StatusOr<int> {
            ++attempts;
            absl::SleepFor(absl::Milliseconds(60));
            return absl::UnavailableError(message);
          },
          [&] { return strangers; })
      .IgnoreError();
  return attempts;
}

TEST(RetryPolicy, GivesUpServersThatNeverAnswered) {
  const char* silence =
      "last error: connection attempt timed out before receiving SETTINGS "
      "frame";
  EXPECT_EQ(SilentAttempts(1, silence), 1);
  EXPECT_EQ(SilentAttempts(2, silence), 2);
  EXPECT_EQ(SilentAttempts(0, silence), 10);
  EXPECT_EQ(SilentAttempts(1, "last error: Connection refused"), 10);
}

}  // namespace
}  // namespace convgrad
