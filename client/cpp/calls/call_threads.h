// `CallThreads` runs a client's asynchronous calls on its own threads. Internal
// to the client.
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
  // Starts threads on demand, at most `most`.
  explicit CallThreads(int most) : most_(most) {}
  // Calls queued tasks with cancelled = true, then blocks until running tasks
  // have ended. Tasks that these post are cancelled as well.
  ~CallThreads();

  using Task = std::function<void(bool cancelled)>;
  // Queues `task`, which is called exactly once. Tasks start in the order of
  // Post.
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
