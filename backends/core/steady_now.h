// `SteadyNow` is the clock of regular work and limits of time.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace convgrad {

// Returns a time that goes on evenly when the wall clock is set. Only
// differences between two results mean anything. Thread-safe.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace convgrad
