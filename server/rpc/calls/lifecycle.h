// `Lifecycle` says whether the server takes calls, and counts the active calls,
// so that a drain can wait for them.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

// `Lifecycle` is thread-safe.
class Lifecycle {
 public:
  // Returns OK while the server takes calls.
  // Errors: kUnavailable, reason DRAINING, once Drain was called.
  absl::Status CheckServing();

  // Counts an active call. Leave must follow exactly once.
  void Enter();
  void Leave();

  // Blocks until no call is active, or `until`. Returns whether no call is
  // active.
  bool AwaitIdle(absl::Time until);

  // Takes no more calls, and blocks until no call is active, `timeout` at most.
  // In the last tenth of `timeout` it waits only while the server is `at_work`,
  // not for calls that wait for their clients. Returns false if work was left
  // when `timeout` ended.
  bool Drain(absl::Duration timeout, const std::function<bool()>& at_work);

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

// `ActiveCallGuard` counts one call as active, from Begin until its
// destruction. Thread-compatible.
class ActiveCallGuard {
 public:
  ActiveCallGuard() = default;
  ActiveCallGuard(const ActiveCallGuard&) = delete;
  ActiveCallGuard& operator=(const ActiveCallGuard&) = delete;
  ~ActiveCallGuard() {
    if (lifecycle_ != nullptr) lifecycle_->Leave();
  }

  // Counts the call. A second Begin changes nothing.
  void Begin(Lifecycle* lifecycle) {
    if (lifecycle_ != nullptr) return;
    lifecycle->Enter();
    lifecycle_ = lifecycle;
  }

 private:
  Lifecycle* lifecycle_ = nullptr;
};

}  // namespace convgrad
