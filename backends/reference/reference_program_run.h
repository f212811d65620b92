// Runs a whole program by the definitions of its operators, step by step.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"

namespace convgrad {

// Rounds values and their gradients to the compute dtype when a step writes
// them, and losses to f32. Sums before that are in double, e.g. the gradient of
// a value that several steps use. Allocates its own memory. Thread-safe.
// Errors: kInvalidArgument naming an invalid class index.
absl::Status RunReferenceProgram(const ProgramOperation& operation,
                                 const RunBuffers& buffers);

// Returns the bytes of the operation's tape, 0 if it has none. The tape holds
// every value as doubles.
int64_t ReferenceTapeBytes(const ProgramOperation& operation);

}  // namespace convgrad
