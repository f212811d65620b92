#include "server/machine/active_clock.h"

#include <algorithm>

namespace convgrad {

void ActiveClock::Tick() {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_();
  paused_ += std::max(now - last_tick_ - kLongestGap, absl::ZeroDuration());
  last_tick_ = now;
}

absl::Time ActiveClock::Now() const {
  MutexLock lock(&mutex_);
  return std::min(clock_(), last_tick_ + kLongestGap) - paused_;
}

}  // namespace convgrad
