// `Box` is a part of a reorder in which source and destination offsets are
// linear in the indices. Blocked axes are cut at their blocks' edges.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "backends/core/physical_layout.h"

namespace convgrad {

// Units: elements.
struct BoxAxis {
  int64_t extent;
  int64_t padded;  // indices [extent, padded) become +0 at the destination
  int64_t source_stride;
  int64_t destination_stride;
};

struct Box {
  absl::InlinedVector<BoxAxis, 8> axes;
  int64_t source_offset = 0;
  int64_t destination_offset = 0;
};

// Returns the offset of an axis's index.
inline int64_t OffsetAt(const PhysicalAxis& axis, int64_t index) {
  const int64_t at = axis.first + index;
  if (axis.block == 0) return at * axis.stride;
  return at / axis.block * axis.block_stride + at % axis.block * axis.stride;
}

// Appends the boxes that move every element of `from` to its place in `to`,
// with offsets relative to `origin`'s. Requires: the same extents, axis by
// axis; no extent 0. If both sides have blocks on an axis, the smaller divides
// the larger.
void AppendBoxes(const Box& origin, const PhysicalLayout& from,
                 const PhysicalLayout& to, std::vector<Box>* boxes);

}  // namespace convgrad
