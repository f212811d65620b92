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
  static const Clock::time_point kFirst = Clock::now();
  static const absl::Time kBegin = absl::Now();
  return kBegin + absl::FromChrono(Clock::now() - kFirst);
}

// Returns a time of SteadyNow in terms of the wall clock.
inline absl::Time WallTime(absl::Time time) {
  return absl::FromChrono(std::chrono::system_clock::now()) +
         (time - SteadyNow());
}

}  // namespace convgrad
