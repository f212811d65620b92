// Finds the largest magnitude of floats, and sums their magnitudes.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// Returns the largest magnitude, 0 of nothing; NaN if there is a NaN.
float LargestMagnitude(absl::Span<const float> values);

// Likewise, in parts. `largest` has MagnitudeParts(values.size()) elements, for
// the time of the call.
int64_t MagnitudeParts(int64_t count);
float LargestMagnitude(absl::Span<const float> values, RunParts run,
                       float* largest);

// Returns the sum of the magnitudes, up to rounding; Inf or NaN if one of them
// is, or if it overflows.
float SumOfMagnitudes(absl::Span<const float> values);

}  // namespace convgrad
