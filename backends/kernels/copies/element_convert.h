// Conversion of contiguous runs of elements, with the widest vectors that the
// CPU at hand has (run-time dispatch). The bits of a result don't depend on the
// CPU.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"

namespace convgrad {

// Converts `count` elements. Equal types are copied bit for bit. Otherwise the
// value is rounded once, to nearest even; overflow gives Inf, subnormals and
// the sign of zero are kept, NaN becomes a quiet NaN with the payload's leading
// bits. Between f16 and bf16 the value passes through f32, which is exact.
// U16 is converted to floating types the same way.
//
// Requires: equal types, or `from` is floating or U16 and `to` is floating. The
// buffers need no alignment and don't overlap. Thread-safe.
void ConvertRun(DataType from, const void* source, DataType to,
                void* destination, int64_t count);

// As ConvertRun, with stores that bypass the caches: for destinations larger
// than them. The caller orders these stores (FinishStreaming) before it lets
// another thread read them.
void StreamRun(DataType from, const void* source, DataType to,
               void* destination, int64_t count);
void FinishStreaming();

}  // namespace convgrad
