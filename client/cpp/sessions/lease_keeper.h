// `LeaseKeeper` renews a session's lease periodically. Internal to the client.
#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

class LeaseKeeper {
 public:
  // Calls `renew` on its own thread every `interval` until it returns false.
  // Requires: interval > 0.
  LeaseKeeper(absl::Duration interval, std::function<bool()> renew);
  // Blocks until a running renewal has ended.
  ~LeaseKeeper();

 private:
  void Run(absl::Duration interval, const std::function<bool()>& renew);

  Mutex mutex_;
  CondVar stops_changed_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace convgrad
