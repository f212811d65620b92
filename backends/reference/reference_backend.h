// `MakeReferenceBackend` makes the backend that is the oracle of tests and the
// last resort. It computes all of proto/single_calls.md, and whole programs, in
// plain loops that sum in double and round once.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad {

// Returns the backend "reference", which supports every valid operation. Never
// fails; it returns a StatusOr as all factories do.
absl::StatusOr<std::unique_ptr<Backend>> MakeReferenceBackend();

}  // namespace convgrad
