#include "client/cpp/calls/retries.h"

#include <algorithm>
#include <cmath>

#include "absl/random/random.h"
#include "client/cpp/calls/rpc_status.h"

namespace convgrad {

std::optional<absl::Duration> RetryPolicy::DelayAfter(
    const absl::Status& status, int attempts) const {
  if (attempts >= max_attempts) return std::nullopt;
  absl::Duration delay =
      std::min(initial * std::pow(multiplier, attempts - 1), longest);
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

}  // namespace convgrad
