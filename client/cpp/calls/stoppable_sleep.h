// `SleepUnlessStopped` is a sleep that a stop request to the thread ends.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "absl/time/time.h"

namespace convgrad {

// Sleeps for `duration` of the steady clock, or until a stop is requested.
// Returns false if one is.
inline bool SleepUnlessStopped(const std::stop_token& stop,
                               absl::Duration duration) {
  std::mutex mutex;
  std::unique_lock<std::mutex> lock(mutex);
  std::condition_variable_any stopped;
  stopped.wait_for(lock, stop, absl::ToChronoNanoseconds(duration),
                   [] { return false; });
  return !stop.stop_requested();
}

}  // namespace convgrad
