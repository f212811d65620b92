// Steps that must not meet, brought by any number of threads.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "backends/core/mutex.h"

namespace convgrad {

// Thread-safe. Shared, so that it outlives what its steps destroy.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  // Runs `step` now, or leaves it to the thread that is running one: steps run
  // one at a time, in the order they came, with no lock held. May be called in
  // a step. Drops the step once closed.
  void Run(std::function<void()> step);

  // No step runs any more but the one that calls this. To be called in a step.
  void Close();

  // Calls `action` unless closed, and keeps Close waiting meanwhile. `action`
  // must be short and not come back here.
  void IfOpen(const std::function<void()>& action);

 private:
  Mutex mutex_;
  std::deque<std::function<void()>> steps_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad
