// `RetryPolicy` decides whether and when the client repeats a failed call. gRPC
// itself never repeats a request larger than 256 KiB, whatever its service
// config says. A repeat is safe because every operation is a pure function of
// its request.
#pragma once

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/calls/rpc_status.h"

namespace convgrad {

// Exponential backoff with jitter. The defaults outlast a server restart of
// about 30 s.
// Value type.
struct RetryPolicy {
  int max_attempts = 20;  // 1: no retry
  absl::Duration initial = absl::Milliseconds(50);
  double multiplier = 2;
  absl::Duration longest = absl::Seconds(2);
  // Each wait is lengthened by a random share of up to `jitter`, so that
  // clients don't retry at the same moment.
  double jitter = 0.25;

  // Returns how long to wait after `attempts` attempts, the last of which ended
  // with `status`; nullopt if there is no further attempt. A repeat may succeed
  // after UNAVAILABLE, and after RESOURCE_EXHAUSTED if the server names a time.
  // It may also succeed after CANCELLED: a stopping server ends calls with it
  // that arrive before the client has read GOAWAY (gRPC 1.51).
  // Requires: the caller didn't cancel the call.
  std::optional<absl::Duration> DelayAfter(const absl::Status& status,
                                           int attempts) const;

  // Returns the sum of the waits after `attempts` attempts, without jitter.
  absl::Duration LeftAfter(int attempts) const;

  // Calls `attempt`, which returns a StatusOr, until it succeeds, or another
  // attempt can't help or would come after the deadline. Also ends when silent
  // servers have taken as much time as the policy would still wait, for each of
  // `strangers()`: the number of servers, or 0 if one has ever answered.
  // Returns the last result. Blocks between the attempts.
  template <typename Attempt>
  auto Persist(absl::Time deadline, const Attempt& attempt,
               absl::FunctionRef<int()> strangers) const {
    absl::Duration silence;
    for (int attempts = 1;; ++attempts) {
      const absl::Time start = absl::Now();
      auto result = attempt();
      if (result.ok()) return result;
      if (IsSilence(result.status())) {
        silence += absl::Now() - start;
        const int servers = strangers();
        if (servers > 0 && silence >= servers * LeftAfter(attempts)) {
          return result;
        }
      }
      const auto delay = DelayAfter(result.status(), attempts);
      if (!delay || absl::Now() + *delay >= deadline) return result;
      absl::SleepFor(*delay);
    }
  }
};

}  // namespace convgrad
