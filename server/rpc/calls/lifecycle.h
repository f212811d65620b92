// `Lifecycle` says whether the server takes calls, and counts the active calls,
// so that a drain can wait for them.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

// `Lifecycle` is thread-safe.
class Lifecycle {
 public:
  struct Leaver {
    void operator()(Lifecycle* lifecycle) const { lifecycle->Leave(); }
  };
  // Counts one call as active until its destruction.
  using ActiveCall = std::unique_ptr<Lifecycle, Leaver>;

  // Lets a call in.
  // Errors: kUnavailable, reason DRAINING, once Drain was called.
  absl::StatusOr<ActiveCall> Enter();

  // Blocks until no call is active, or `until`. Returns whether no call is
  // active.
  bool AwaitIdle(absl::Time until);

  // Takes no more calls, and blocks until no call is active, `timeout` at most.
  // In the last tenth of `timeout` it waits only while the server is `at_work`,
  // not for calls that wait for their clients. Returns false if work was left
  // when `timeout` ended.
  bool Drain(absl::Duration timeout, const std::function<bool()>& at_work);

 private:
  void Leave();

  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad
