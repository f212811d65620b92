#include "server/rpc/calls/strand.h"

#include <utility>

namespace convgrad {

void Strand::Run(std::function<void()> task) {
  const std::shared_ptr<Strand> self = shared_from_this();
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    tasks_.push_back(std::move(task));
    if (running_) return;
    running_ = true;
  }
  while (true) {
    std::function<void()> next;
    {
      MutexLock lock(&mutex_);
      if (tasks_.empty()) {
        running_ = false;
        return;
      }
      next = std::move(tasks_.front());
      tasks_.pop_front();
    }
    next();
  }
}

void Strand::Close() {
  std::deque<std::function<void()>> dropped;
  MutexLock lock(&mutex_);
  closed_ = true;
  dropped.swap(tasks_);
}

void Strand::IfOpen(const std::function<void()>& action) {
  MutexLock lock(&mutex_);
  if (!closed_) action();
}

}  // namespace convgrad
