// `Notices` queues the calls that are over, for the Python thread that
// completes futures.
#pragma once

#include <cstdint>
#include <deque>

#include "backends/core/mutex.h"

namespace convgrad {

// Thread-safe.
class Notices {
 public:
  void Add(int64_t call) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    calls_.push_back(call);
    added_.NotifyOne();
  }

  // Blocks until there is a notice.
  int64_t Next() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (calls_.empty()) added_.Wait(&mutex_);
    const int64_t call = calls_.front();
    calls_.pop_front();
    return call;
  }

 private:
  Mutex mutex_;
  CondVar added_;
  std::deque<int64_t> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
