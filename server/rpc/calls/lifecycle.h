// Whether calls are taken, and how many are being worked on: what a drain
// needs.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

// Thread-safe.
class Lifecycle {
 public:
  // Errors: kUnavailable, reason DRAINING, once Drain was called.
  absl::Status CheckServing();

  // Counts a call that is taken. Leave follows exactly once.
  void Enter();
  void Leave();

  // Waits until no call is left, or `until`. Returns whether none is.
  bool AwaitIdle(absl::Time until);

  // Takes no more calls, and waits until none is left, `timeout` at most: for
  // nine tenths of it whatever the calls wait for, then only for what is
  // `at_work`. Returns whether nothing is. Calls that wait for their clients
  // may be left.
  bool Drain(absl::Duration timeout, const std::function<bool()>& at_work);

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

// A call's place among those that are worked on: left when this ends.
// Thread-compatible.
class Attendance {
 public:
  Attendance() = default;
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;
  ~Attendance() {
    if (lifecycle_ != nullptr) lifecycle_->Leave();
  }

  // Counts the call; once, however often it is called.
  void Begin(Lifecycle* lifecycle) {
    if (lifecycle_ != nullptr) return;
    lifecycle->Enter();
    lifecycle_ = lifecycle;
  }

 private:
  Lifecycle* lifecycle_ = nullptr;
};

}  // namespace convgrad
