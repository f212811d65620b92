#include "client/cpp/sessions/lease_keeper.h"

#include <utility>

#include "absl/time/clock.h"

namespace convgrad {

LeaseKeeper::LeaseKeeper(absl::Duration interval, std::function<bool()> renew)
    : thread_([this, interval, renew = std::move(renew)] {
        Run(interval, renew);
      }) {}

LeaseKeeper::~LeaseKeeper() {
  {
    MutexLock lock(&mutex_);
    stops_ = true;
    stops_changed_.NotifyAll();
  }
  thread_.join();
}

void LeaseKeeper::Run(absl::Duration interval,
                      const std::function<bool()>& renew) {
  do {
    const absl::Time until = absl::Now() + interval;
    MutexLock lock(&mutex_);
    while (!stops_ && !stops_changed_.WaitUntil(&mutex_, until)) {
    }
    if (stops_) return;
  } while (renew());
}

}  // namespace convgrad
