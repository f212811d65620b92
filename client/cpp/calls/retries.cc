#include "client/cpp/calls/retries.h"

#include <algorithm>
#include <cmath>

#include "absl/random/random.h"

namespace convgrad {
namespace {

absl::Duration Backoff(const RetryPolicy& policy, int attempts) {
  return std::min(policy.initial * std::pow(policy.multiplier, attempts - 1),
                  policy.longest);
}

}  // namespace

std::optional<absl::Duration> RetryPolicy::DelayAfter(
    const absl::Status& status, int attempts) const {
  if (attempts >= max_attempts) return std::nullopt;
  absl::Duration delay = Backoff(*this, attempts);
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    const std::optional<absl::Duration> pushback = PushbackOf(status);
    if (!pushback) return std::nullopt;
    delay = std::max(delay, *pushback);
  } else if (status.code() != absl::StatusCode::kUnavailable &&
             status.code() != absl::StatusCode::kCancelled) {
    return std::nullopt;
  }
  absl::BitGen random;
  return delay * (1 + absl::Uniform(random, 0.0, std::max(jitter, 1e-9)));
}

absl::Duration RetryPolicy::LeftAfter(int attempts) const {
  absl::Duration left;
  for (; attempts < max_attempts; ++attempts) left += Backoff(*this, attempts);
  return left;
}

}  // namespace convgrad
