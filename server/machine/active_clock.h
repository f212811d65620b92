// `ActiveClock` counts the time in which the process runs.
#pragma once

#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "backends/core/steady_now.h"

namespace convgrad {

// While the process is paused, as by `docker pause`, the clock goes on for at
// most kLongestGap and then stops. It continues with the next Tick.
// Thread-safe.
class ActiveClock {
 public:
  // The longest time between two calls of Tick that doesn't count as a pause,
  // because a thread may wait that long for a core.
  static constexpr absl::Duration kLongestGap = absl::Seconds(1);

  explicit ActiveClock(std::function<absl::Time()> clock = SteadyNow)
      : clock_(std::move(clock)), last_tick_(clock_()) {}

  // Says that the process runs. Call it several times a second.
  void Tick();

  absl::Time Now() const;

 private:
  const std::function<absl::Time()> clock_;
  mutable Mutex mutex_;
  absl::Time last_tick_ ABSL_GUARDED_BY(mutex_);
  // The time of all pauses.
  absl::Duration paused_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
