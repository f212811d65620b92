// Renews a session's lease now and then. Internal to the client.
#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

class LeaseKeeper {
 public:
  // Calls `renew` on a thread of its own every `interval`, until it returns
  // false. Requires: interval > 0.
  LeaseKeeper(absl::Duration interval, std::function<bool()> renew);
  // Waits for the renewal under way.
  ~LeaseKeeper();

 private:
  void Run(absl::Duration interval, const std::function<bool()>& renew);

  Mutex mutex_;
  CondVar stops_changed_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace convgrad
