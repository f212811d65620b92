// Threads that run a client's calls while the caller does something else.
// Internal to the client.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "backends/core/mutex.h"

namespace convgrad {

// Thread-safe.
class CallThreads {
 public:
  // Starts no thread before it is needed, and never more than `most`.
  explicit CallThreads(int most) : most_(most) {}
  // Calls tasks that wait as cancelled, then waits for those that run; what
  // these post is cancelled, too.
  ~CallThreads();

  using Task = std::function<void(bool cancelled)>;
  // Has `task` called once, after those posted before.
  void Post(Task task);

 private:
  void Run();

  const int most_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
