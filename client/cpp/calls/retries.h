// When a failed call is sent again. gRPC never repeats a request beyond
// 256 KiB, whatever its service config says; every operation is a pure function
// of its request, so that a repeat does no harm.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace convgrad {

// Exponential backoff with jitter. The defaults outlast a restart of some 30 s.
// Value type.
struct RetryPolicy {
  int max_attempts = 20;  // 1 is no retry
  absl::Duration initial = absl::Milliseconds(50);
  double multiplier = 2;
  absl::Duration longest = absl::Seconds(2);
  // Waits are lengthened by up to this share, so that clients don't come
  // together.
  double jitter = 0.25;

  // Returns how long to wait after `attempts` attempts, of which the last ended
  // with `status`; nullopt if there is to be no other. A repeat may help after
  // UNAVAILABLE, after RESOURCE_EXHAUSTED if the server says when to come
  // again, and after CANCELLED: a server that stops ends calls with it that
  // arrive before the client has read GOAWAY (gRPC 1.51).
  // Requires: the caller didn't cancel the call.
  std::optional<absl::Duration> DelayAfter(const absl::Status& status,
                                           int attempts) const;

  // Calls `attempt`, which returns a StatusOr, until it succeeds, or another
  // attempt can't help or would come after the deadline. Returns the last
  // result. Blocks between the attempts.
  template <typename Attempt>
  auto Persist(absl::Time deadline, const Attempt& attempt) const {
    for (int attempts = 1;; ++attempts) {
      auto result = attempt();
      if (result.ok()) return result;
      const auto delay = DelayAfter(result.status(), attempts);
      if (!delay || absl::Now() + *delay >= deadline) return result;
      absl::SleepFor(*delay);
    }
  }
};

}  // namespace convgrad
