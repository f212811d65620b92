// `WrongResults` and `AgreesWithReference` compare the results of a plan with
// those of the reference.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/program/program_operation.h"

namespace convgrad {

// Runs `plan` and the reference's plan on the same small integers, whose sums
// are exact in every dtype. Returns the results that aren't equal bit for bit
// (-0 equals +0); all results if the plan fails to run. Pad lanes of operands,
// results and scratch begin as NaN. Call it on a thread that may run the plan.
// Allocates its own memory.
// Requires: `plan` belongs to `operation`; the reference supports it.
// Errors: those of the reference.
absl::StatusOr<std::vector<Result>> WrongResults(const ConvOperation& operation,
                                                 const Plan& plan,
                                                 const Backend& reference);

// Runs `plan` and the reference's on the same small numbers. Returns whether
// all results agree within 1e-4 (f32) or 1/16 (bf16) of the largest magnitude
// of the reference's result: enough to tell a wrong tap, channel, mask or
// statistic from rounding. Returns false if the plan fails to run. Scratch and
// results begin as NaN. To be called on a thread that the plan may run on.
// Requires: `plan` is of `operation`; the reference supports it.
// Errors: those of the reference.
absl::StatusOr<bool> AgreesWithReference(const ProgramOperation& operation,
                                         const Plan& plan,
                                         const Backend& reference);

}  // namespace convgrad
