// How a box of a reorder is cut into tiles that fit the first-level cache.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "backends/core/data_type.h"
#include "backends/kernels/copies/reorder_box.h"

namespace convgrad {

struct TileOptions {
  DataType from;
  DataType to;
  // Elements of the source that may be read, from its start.
  int64_t readable = 0;
  // Bypass the caches on writing.
  bool stream = false;
  // Keep the first axis outermost and cut tiles at each of its steps.
  bool pin_first = false;
};

// The most elements that a tile has; the second where both types have 16 bits.
// 16 and 32 KiB: of these, half and double as many the fastest on an EPYC 9004
// (tests/bench/reorder_speed).
inline constexpr int64_t kWideTileElements = 4096;
inline constexpr int64_t kNarrowTileElements = 16384;

struct BoxTiling {
  using Extents = absl::InlinedVector<int64_t, 8>;
  using Order = absl::InlinedVector<int, 8>;  // axes, outermost first

  // Merged where both sides pass them evenly; by destination stride,
  // descending.
  absl::InlinedVector<BoxAxis, 8> axes;
  Order by_source;      // by source stride, descending
  Order walk;           // of one tile after the other
  Extents tile;         // extents of a whole tile
  Extents tile_counts;  // along each axis
  int64_t tile_count = 1;
};

// Returns a tiling whose tiles have long contiguous runs on both sides.
BoxTiling ChooseTiling(Box box, const TileOptions& options);

}  // namespace convgrad
