// Predicts how long a call takes on each backend, by which "auto" chooses.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "backends/core/backend.h"

namespace convgrad {

// What a call is expected to take on one backend.
struct Prediction {
  absl::string_view backend;
  absl::Duration wire;      // operands and results of the message
  absl::Duration transfer;  // as RunTimes has it
  absl::Duration compute;

  absl::Duration total() const { return wire + transfer + compute; }
};

// Returns what a call of `operation` with `wire_bytes` of operands and results
// in its messages would take on `backend`. Follows from what the backend says
// of itself (Backend::rates) alone, so that the choice, and with it the bits,
// is the same every time. Thread-safe.
Prediction Predict(const Backend& backend, const Operation& operation,
                   int64_t wire_bytes, int threads_per_worker);

}  // namespace convgrad
