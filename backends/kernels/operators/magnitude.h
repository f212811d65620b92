// Finds the largest magnitude of f32 or bf16 numbers, and sums magnitudes.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// Returns the largest magnitude; 0 if there are no values, NaN if one is NaN.
float LargestMagnitude(absl::Span<const float> values);

// Does the same in parts, for `count` numbers of f32 or bf16. `largest` has
// MagnitudeParts(count) elements that the call may overwrite.
int64_t MagnitudeParts(int64_t count);
float LargestMagnitude(DataType dtype, const void* values, int64_t count,
                       RunParts run, float* largest);

// Returns the sum of the magnitudes, with rounding; Inf or NaN if a value is
// Inf or NaN, or if the sum overflows.
float SumOfMagnitudes(absl::Span<const float> values);

}  // namespace convgrad
