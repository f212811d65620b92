// Runs one operation on a backend the way a hostile caller would: pad lanes,
// results and scratch start as NaN, canaries stand around every buffer.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/reference/exact_convolution.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {

// Returns the results in the order of operation.results. Adds a test failure if
// a canary died, an operand changed, or support claims and planning disagree.
// `operands` holds logical values that their dtypes represent exactly.
// Errors: kUnimplemented if the backend refuses; else that of plan or run.
absl::StatusOr<std::vector<GuardedBuffer>> RunChecked(
    const Backend& backend, const ConvOperation& operation,
    const ExactOperands& operands);

}  // namespace convgrad::testing_support
