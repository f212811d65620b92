// `SteadyNow` is the clock of regular work and limits of time.
#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace convgrad {

// Returns a time that goes on evenly when the wall clock is set. It starts with
// the wall clock's time at the first call. Thread-safe.
inline absl::Time SteadyNow() {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point first = Clock::now();
  static const absl::Time begin = absl::Now();
  return begin + absl::FromChrono(Clock::now() - first);
}

// Returns a time of SteadyNow in terms of the wall clock.
inline absl::Time WallTime(absl::Time time) {
  return absl::FromChrono(std::chrono::system_clock::now()) +
         (time - SteadyNow());
}

}  // namespace convgrad
