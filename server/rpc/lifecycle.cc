#include "server/rpc/lifecycle.h"

#include "server/scheduling/scheduler.h"

namespace convgrad {

absl::Status Lifecycle::CheckServing() {
  MutexLock lock(&mutex_);
  return draining_ ? DrainingError() : absl::OkStatus();
}

void Lifecycle::Enter() {
  MutexLock lock(&mutex_);
  ++calls_;
}

void Lifecycle::Leave() {
  MutexLock lock(&mutex_);
  --calls_;
  changed_.NotifyAll();
}

void Lifecycle::StartDraining() {
  MutexLock lock(&mutex_);
  draining_ = true;
}

bool Lifecycle::AwaitIdle(absl::Time until) {
  MutexLock lock(&mutex_);
  while (calls_ > 0) {
    if (changed_.WaitUntil(&mutex_, until)) break;
  }
  return calls_ == 0;
}

}  // namespace convgrad
