// The oracle and the last resort: the whole of proto/single_calls.md, and whole
// programs in plain loops, summed in double and rounded once.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad {

// Returns the backend "reference". Supports every valid operation. Never fails;
// StatusOr is what all factories return.
absl::StatusOr<std::unique_ptr<Backend>> MakeReferenceBackend();

}  // namespace convgrad
