// `Predict` predicts how long a call takes on a backend. Backend "auto" chooses
// by it.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "backends/core/backend.h"

namespace convgrad {

// The predicted times of a call on one backend.
struct Prediction {
  absl::string_view backend;
  absl::Duration wire;      // operands and results of the message
  absl::Duration transfer;  // as RunTimes has it
  absl::Duration compute;

  absl::Duration total() const { return wire + transfer + compute; }
};

// Returns the predicted times of a call of `operation` on `backend`, with
// `wire_bytes` of operands and results in its messages. They follow from
// Backend::rates alone, so that the choice, and the bits with it, are the same
// each time. Thread-safe.
Prediction Predict(const Backend& backend, const Operation& operation,
                   int64_t wire_bytes, int threads_per_worker);

}  // namespace convgrad
