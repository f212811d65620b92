// Finds the largest magnitude of floats, and sums their magnitudes.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// Returns the largest magnitude; 0 if there are no values, NaN if one is NaN.
float LargestMagnitude(absl::Span<const float> values);

// Does the same in parts. `largest` has MagnitudeParts(values.size()) elements
// that the call may overwrite.
int64_t MagnitudeParts(int64_t count);
float LargestMagnitude(absl::Span<const float> values, RunParts run,
                       float* largest);

// Returns the sum of the magnitudes, with rounding; Inf or NaN if a value is
// Inf or NaN, or if the sum overflows.
float SumOfMagnitudes(absl::Span<const float> values);

}  // namespace convgrad
