// Converts contiguous elements with the widest vectors of this CPU (run-time
// dispatch). The bits of a result don't depend on the CPU.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"

namespace convgrad {

// Converts `count` elements. Copies equal types bit for bit. Otherwise rounds
// once, to nearest even: overflow gives Inf, subnormals and the sign of zero
// are kept, NaN becomes a quiet NaN with the payload's leading bits.
// Conversions between f16 and bf16 pass through f32, which is exact. U8 and U16
// are converted to floating types the same way.
//
// Requires: equal types, or `from` is floating, U8 or U16, and `to` floating.
// The buffers need no alignment and must not overlap. Thread-safe.
void ConvertRun(DataType from, const void* source, DataType to,
                void* destination, int64_t count);

}  // namespace convgrad
