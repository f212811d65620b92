// Counts Inf and NaN elements.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"

namespace convgrad {

// Returns how many of `count` elements are Inf or NaN. Thread-safe.
int64_t CountNonfinite(DataType dtype, const void* data, int64_t count);

}  // namespace convgrad
