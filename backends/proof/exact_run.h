// Compares the results of a plan with those of the reference.
#pragma once

#include <vector>

#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Runs `plan` and the reference's on the same small integers, of which every
// dtype holds the sums, and returns the results that aren't equal bit for bit
// (but that -0 equals +0), all of them if the plan fails to run. Pad lanes of
// operands, results and scratch begin as NaN. To be called on a thread that the
// plan may run on. Takes memory of its own.
// Requires: `plan` is of `operation`; the reference supports it.
// Errors: those of the reference.
absl::StatusOr<std::vector<Result>> WrongResults(const ConvOperation& operation,
                                                 const Plan& plan,
                                                 const Backend& reference);

}  // namespace convgrad
