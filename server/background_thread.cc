#include "server/background_thread.h"

#include <utility>

#include "absl/time/clock.h"

namespace convgrad {

BackgroundThread::BackgroundThread(absl::Duration period,
                                   std::function<void()> tick)
    : period_(period), tick_(std::move(tick)), thread_([this] { Run(); }) {}

BackgroundThread::~BackgroundThread() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void BackgroundThread::Post(std::function<void()> task) {
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  changed_.NotifyAll();
}

void BackgroundThread::Run() {
  absl::Time next_tick = absl::Now() + period_;
  while (true) {
    std::deque<std::function<void()>> tasks;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) {
        if (changed_.WaitUntil(&mutex_, next_tick)) break;
      }
      if (tasks_.empty() && stopping_) return;
      tasks.swap(tasks_);
    }
    for (const std::function<void()>& task : tasks) task();
    if (absl::Now() < next_tick) continue;
    tick_();
    next_tick = absl::Now() + period_;
  }
}

}  // namespace convgrad
