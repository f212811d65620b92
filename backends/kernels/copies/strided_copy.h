// `CopyStrided` copies small boxes of elements between two memory orders.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace convgrad {

// Units: elements.
struct StridedLoop {
  int64_t extent;
  int64_t source_stride;
  int64_t destination_stride;
};

using StridedLoops = absl::InlinedVector<StridedLoop, 8>;  // outermost first

// Removes loops of one step and merges neighbours that are contiguous on both
// sides.
void MergeLoops(StridedLoops* loops);

// Calls body(source offset, destination offset) for each step of the loops.
template <typename Body>
void ForEachStep(absl::Span<const StridedLoop> loops, int64_t source,
                 int64_t destination, const Body& body) {
  if (loops.empty()) return body(source, destination);
  for (int64_t i = 0; i < loops.front().extent; ++i) {
    ForEachStep(loops.subspan(1), source + i * loops.front().source_stride,
                destination + i * loops.front().destination_stride, body);
  }
}

// Copies elements of 1, 2 or 4 bytes. The loops should be merged. Fastest if
// the innermost loop has stride 1 on both sides.
void CopyStrided(int element_bytes, absl::Span<const StridedLoop> loops,
                 const void* source, void* destination);

}  // namespace convgrad
