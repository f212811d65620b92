// `RunChecked` runs one operation on a backend as a hostile caller would: pad
// lanes, results and scratch start as NaN, and canaries surround every buffer.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/reference/exact_convolution.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {

// Returns the results in the order of operation.results. Adds a test failure if
// a canary or an operand changed, or if support claims and planning disagree.
// `operands` holds logical values that their dtypes represent exactly.
// Errors: kUnimplemented if the backend refuses; otherwise those of plan and
// run.
absl::StatusOr<std::vector<GuardedBuffer>> RunChecked(
    const Backend& backend, const ConvOperation& operation,
    const ExactOperands& operands);

}  // namespace convgrad::testing_support
