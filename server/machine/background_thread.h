// `BackgroundThread` runs tasks that other threads post, and a periodic task.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

// `BackgroundThread` is thread-safe. Its periods don't follow changes of the
// wall clock.
class BackgroundThread {
 public:
  // Runs `tick` every `period`, and the posted tasks.
  BackgroundThread(absl::Duration period, std::function<void()> tick);
  // Runs only posted tasks, on `threads` threads.
  explicit BackgroundThread(int threads);
  // Runs the tasks posted so far, and blocks until they have ended.
  ~BackgroundThread();

  // Runs `task` soon. Owners take turns, so that one with many tasks doesn't
  // keep the others waiting. The tasks of one owner start in order.
  void Post(std::function<void()> task, const std::string& owner = "");
  // Returns a function that posts a task of an owner, as long as this exists.
  std::function<void(const std::string& owner, std::function<void()> task)>
  executor();
  // Returns whether no task waits or runs.
  bool is_idle();
  // Returns whether a task waits, or the destructor does.
  bool is_awaited();

 private:
  using Clock = std::chrono::steady_clock;

  void Run();
  // Removes the next task and returns it. Requires: a task waits.
  std::function<void()> Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::chrono::nanoseconds period_{};
  const std::function<void()> tick_;
  Mutex mutex_;
  CondVar changed_;
  // The waiting tasks of each owner that has some.
  std::map<std::string, std::deque<std::function<void()>>> tasks_
      ABSL_GUARDED_BY(mutex_);
  // The owner of the task that started last.
  std::string last_owner_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point next_tick_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace convgrad
