// `NominalTime` computes the time of an operation on a modest machine. It
// depends only on the operation and the configuration, so that slices never
// change with load.
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

// Returns how many items of the batch one slice has. If the whole batch takes
// at most 200 ms of nominal time, it is one slice. Otherwise the slices have
// about equal size and take at most 200 ms each. Range: >= 1.
int64_t ItemsPerSlice(const Backend& backend, const Operation& operation,
                      int threads);

// Returns the operations whose plans a job of `operation` needs: `operation`
// itself, or its slices that differ.
std::vector<std::shared_ptr<const Operation>> PlannedOperations(
    const Backend& backend, const std::shared_ptr<const Operation>& operation,
    int threads);

}  // namespace convgrad
