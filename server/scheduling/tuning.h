// The tuning run: times every backend's ways to compute an operation.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "backends/registry.h"

namespace convgrad {

// Has every backend that supports them time its ways to compute `operations`,
// on this thread with a team of `threads`. What was timed is then in
// Backend::tuning().
// Errors: kInternal if a backend fails.
absl::Status Tune(
    const std::vector<std::shared_ptr<const Operation>>& operations,
    int threads, const std::vector<RegisteredBackend>& backends);

}  // namespace convgrad
