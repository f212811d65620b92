// A thread for small chores: what must not run on the thread that noticed it,
// and what has to be looked at now and then.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

// Thread-safe.
class BackgroundThread {
 public:
  // Runs `tick` every `period`, beside the tasks.
  BackgroundThread(absl::Duration period, std::function<void()> tick);
  // Runs the tasks posted so far, and stops.
  ~BackgroundThread();

  // Has `task` run soon, after those posted before.
  void Post(std::function<void()> task);

 private:
  void Run();

  const absl::Duration period_;
  const std::function<void()> tick_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace convgrad
