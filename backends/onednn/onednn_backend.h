// The CPU backend on oneDNN 3.2 or later.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad {

// Returns the backend. Its plans run on the calling thread's OpenMP team, so
// use it from a fixed set of threads. Errors: kFailedPrecondition if the
// library is older than 3.2.
absl::StatusOr<std::unique_ptr<Backend>> MakeOnednnBackend();

}  // namespace convgrad
