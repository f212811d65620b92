#include "server/machine/background_thread.h"

#include <functional>
#include <utility>

namespace convgrad {

BackgroundThread::BackgroundThread(absl::Duration period,
                                   std::function<void()> tick)
    : period_(absl::ToChronoNanoseconds(period)),
      tick_(std::move(tick)),
      next_tick_(Clock::now() + period_) {
  threads_.emplace_back([this] { Run(); });
}

BackgroundThread::BackgroundThread(int threads)
    : next_tick_(Clock::time_point::max()) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

BackgroundThread::~BackgroundThread() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void BackgroundThread::Post(std::function<void()> task,
                            const std::string& owner) {
  MutexLock lock(&mutex_);
  tasks_[owner].push_back(std::move(task));
  changed_.NotifyOne();
}

std::function<void()> BackgroundThread::Take() {
  // The turns go round the owners in the order of their names.
  auto next = tasks_.upper_bound(last_owner_);
  if (next == tasks_.end()) next = tasks_.begin();
  last_owner_ = next->first;
  std::function<void()> task = std::move(next->second.front());
  next->second.pop_front();
  if (next->second.empty()) tasks_.erase(next);
  return task;
}

std::function<void(const std::string&, std::function<void()>)>
BackgroundThread::executor() {
  return [this](const std::string& owner, std::function<void()> task) {
    Post(std::move(task), owner);
  };
}

bool BackgroundThread::is_idle() {
  MutexLock lock(&mutex_);
  return tasks_.empty() && running_ == 0;
}

bool BackgroundThread::is_awaited() {
  MutexLock lock(&mutex_);
  return stopping_ || !tasks_.empty();
}

void BackgroundThread::Run() {
  while (true) {
    std::function<void()> task;
    bool ticks = false;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_ && Clock::now() < next_tick_) {
        if (tick_ == nullptr) {
          changed_.Wait(&mutex_);
        } else {
          changed_.WaitFor(&mutex_, next_tick_ - Clock::now());
        }
      }
      ticks = !stopping_ && next_tick_ <= Clock::now();
      if (tasks_.empty() && !ticks) {
        if (stopping_) return;
        continue;
      }
      // A copy of tick_ would lose the state that it keeps.
      task = ticks ? std::ref(tick_) : Take();
      ++running_;
    }
    task();
    task = nullptr;
    MutexLock lock(&mutex_);
    --running_;
    if (ticks) next_tick_ = Clock::now() + period_;
  }
}

}  // namespace convgrad
