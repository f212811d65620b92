// `NominalTime` computes how long an operation takes on a modest machine. It is
// a function of the operation and the configuration alone, so that the cuts
// that follow from it never change.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "backends/core/backend.h"
#include "backends/core/batch_slices.h"

namespace convgrad {

// Returns the time of `operation` on `backend` with `threads` threads.
absl::Duration NominalTime(const Backend& backend, const Operation& operation,
                           int threads);

// Returns how many items of the batch one slice has: all of them if that takes
// at most 200 ms of nominal time, otherwise slices of about equal size that do.
// Range: >= 1.
int64_t ItemsPerSlice(const Backend& backend, const Operation& operation,
                      int threads);

// Returns the operations whose plans a job of `operation` needs: `operation`,
// or its different slices.
std::vector<std::shared_ptr<const Operation>> PlannedOperations(
    const Backend& backend, const std::shared_ptr<const Operation>& operation,
    int threads);

}  // namespace convgrad
