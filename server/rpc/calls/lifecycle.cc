#include "server/rpc/calls/lifecycle.h"

#include <algorithm>

#include "backends/core/steady_now.h"
#include "server/scheduling/scheduler.h"

namespace convgrad {
namespace {

// The longest single wait, because nanoseconds overflow for long times.
constexpr absl::Duration kLongestWait = absl::Hours(1);

}  // namespace

absl::StatusOr<Lifecycle::ActiveCall> Lifecycle::Enter() {
  MutexLock lock(&mutex_);
  if (draining_) return DrainingError();
  ++calls_;
  return ActiveCall(this);
}

void Lifecycle::Leave() {
  MutexLock lock(&mutex_);
  --calls_;
  changed_.NotifyAll();
}

bool Lifecycle::AwaitIdle(absl::Time until) {
  MutexLock lock(&mutex_);
  while (calls_ > 0) {
    const absl::Duration left = until - SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mutex_,
                     absl::ToChronoNanoseconds(std::min(left, kLongestWait)));
  }
  return calls_ == 0;
}

bool Lifecycle::Drain(absl::Duration timeout,
                      const std::function<bool()>& at_work) {
  constexpr absl::Duration kInterval = absl::Milliseconds(20);
  const absl::Time end = SteadyNow() + timeout;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
  }
  if (AwaitIdle(end - timeout / 10)) return true;
  while (at_work()) {
    const absl::Time now = SteadyNow();
    if (now >= end) return false;
    if (AwaitIdle(std::min(end, now + kInterval))) return true;
  }
  return true;
}

}  // namespace convgrad
