// `RunProgram` runs a program on a backend as a hostile caller would: results
// and scratch start as NaN, canaries surround every buffer, and each operation
// runs twice.
#pragma once

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "tests/conformance/programs/program_data.h"

namespace convgrad::testing_support {

// Results by name: values and new statistics, and gradients of inputs and
// parameters.
struct ProgramOutcome {
  NamedValues values;
  NamedValues gradients;
};

// Runs one operation, kForward or kTrain. Adds a test failure if a canary or an
// operand changed, the second run has other bytes, or support claims and
// planning disagree.
// Errors: kUnimplemented if the backend refuses.
absl::StatusOr<ProgramOutcome> RunProgram(const Backend& backend,
                                          ProgramRequest request,
                                          const ProgramData& data);

// Runs `forward` with a tape and then the backward of all its outputs, with the
// same checks.
absl::StatusOr<ProgramOutcome> RunProgramWithTape(const Backend& backend,
                                                  ProgramRequest forward,
                                                  const ProgramData& data);

}  // namespace convgrad::testing_support
