// `Strand` runs tasks of any thread, one at a time.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "backends/core/mutex.h"

namespace convgrad {

// `Strand` runs its tasks in the order of the calls of Run, with no lock held.
// Thread-safe. Owners share it, so that it outlives the objects that its tasks
// delete.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  // Runs `task` now, or queues it if another thread is running a task. A task
  // may call Run. Drops the task if the strand is closed.
  void Run(std::function<void()> task);

  // Drops all tasks except the one that calls this. Only a task may call it.
  void Close();

  // Calls `action` unless the strand is closed. Close blocks until it returns.
  // `action` must be short and must not use the strand.
  void IfOpen(const std::function<void()>& action);

 private:
  Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad
