// `Transpose` copies between two memory orders whose contiguous axes differ.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "backends/kernels/copies/strided_copy.h"

namespace convgrad {

// source[r * row_pitch + c] becomes destination[c * column_pitch + r], at every
// step of `outer`. Units: elements.
struct TransposeTile {
  int element_bytes;  // 2 or 4
  int64_t rows;
  // Contiguous elements written to the destination: `rows`, then zeros.
  int64_t padded_rows;
  int64_t columns;
  int64_t row_pitch;
  int64_t column_pitch;
  absl::Span<const StridedLoop> outer;
  // Number of elements that may be read from `source` on.
  int64_t readable;
};

// The buffers need no alignment. Requires: rows, columns >= 1; no overlap.
// Thread-safe.
void Transpose(const TransposeTile& tile, const void* source,
               void* destination);

}  // namespace convgrad
