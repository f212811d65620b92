// Compares the results of a plan with those of the reference.
#pragma once

#include <vector>

#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"

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

}  // namespace convgrad
