// `Progress` shows a line on stderr while an operation takes longer than a
// second.
#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>

namespace convgrad {

// Shows nothing during the first second, and nothing at all if stderr isn't a
// terminal. The destructor erases the line. Owned by one thread.
class Progress {
 public:
  // `total` is the number of items; of 1 only the time is shown.
  Progress(std::string what, int64_t total);

  // Another item is done.
  void Advance() { ++done_; }

 private:
  void Run(const std::stop_token& stop);

  const std::string what_;
  const int64_t total_;
  std::atomic<int64_t> done_ = 0;
  // The last member, because it uses the others.
  std::jthread thread_;
};

}  // namespace convgrad
