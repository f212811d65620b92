// `Progress` shows a line on stderr while an operation takes longer than a
// second.
#pragma once

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "backends/core/mutex.h"

namespace convgrad {

// Shows nothing during the first second, and nothing at all if stderr isn't a
// terminal. Owned by one thread.
class Progress {
 public:
  // `total` is the number of steps; if it is 1, the line shows only the time.
  Progress(std::string what, int total);
  // Erases the line.
  ~Progress();

  // Counts another completed step.
  void Advance();

 private:
  void Run();

  const std::string what_;
  const int total_;
  Mutex mutex_;
  CondVar changed_;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace convgrad
