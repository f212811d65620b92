// Whether calls are taken, and how many are being worked on: what a drain
// needs.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

// Thread-safe.
class Lifecycle {
 public:
  // Errors: kUnavailable, reason DRAINING, after StartDraining.
  absl::Status CheckServing();

  // Counts a call that is taken. Leave follows exactly once.
  void Enter();
  void Leave();

  void StartDraining();

  // Waits until no call is left, or `until`. Returns whether none is.
  bool AwaitIdle(absl::Time until);

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad
