// `Predict` predicts the time of a call on a backend. Backend "auto" uses it to
// choose a backend.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "backends/core/backend.h"

namespace convgrad {

// The predicted times of a call on one backend.
struct Prediction {
  absl::string_view backend;
  absl::Duration wire;      // Operands and results of the messages.
  absl::Duration transfer;  // Between host and device; see RunTimes.
  absl::Duration compute;

  absl::Duration total() const { return wire + transfer + compute; }
};

// Returns the predicted times of a call of `operation` on `backend`, with
// `wire_bytes` of operands and results in its messages. They depend only on
// Backend::rates, so that the choice and the bits are the same each time.
// Thread-safe.
Prediction Predict(const Backend& backend, const Operation& operation,
                   int64_t wire_bytes, int threads_per_worker);

}  // namespace convgrad
