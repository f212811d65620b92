#include "client/cpp/calls/call_threads.h"

#include <utility>

namespace convgrad {

CallThreads::~CallThreads() {
  std::vector<std::thread> threads;
  std::deque<Task> waiting;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    threads.swap(threads_);
    waiting.swap(tasks_);
  }
  for (const Task& task : waiting) task(/*cancelled=*/true);
  for (std::thread& thread : threads) thread.join();
}

void CallThreads::Post(Task task) {
  {
    MutexLock lock(&mutex_);
    if (!stopping_) {
      tasks_.push_back(std::move(task));
      const bool all_busy = static_cast<size_t>(idle_) < tasks_.size();
      if (all_busy && std::ssize(threads_) < most_) {
        threads_.emplace_back([this] { Run(); });
      }
      return changed_.NotifyOne();
    }
  }
  // All threads may have ended.
  task(/*cancelled=*/true);
}

void CallThreads::Run() {
  mutex_.Lock();
  while (true) {
    while (tasks_.empty() && !stopping_) {
      ++idle_;
      changed_.Wait(&mutex_);
      --idle_;
    }
    if (stopping_) break;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    mutex_.Unlock();
    task(/*cancelled=*/false);
    mutex_.Lock();
  }
  mutex_.Unlock();
}

}  // namespace convgrad
