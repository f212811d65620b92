// `ChooseTiling` cuts a box of a reorder into tiles that fit the first-level
// cache.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "backends/core/data_type.h"
#include "backends/kernels/copies/reorder_box.h"

namespace convgrad {

struct TileOptions {
  DataType from;
  DataType to;
  // Number of elements that may be read from the source's start on.
  int64_t readable = 0;
};

// Maximum number of elements in a tile; the second one holds if both types have
// 16 bits. They are 16 and 32 KiB, which were faster than half and double as
// much on an EPYC 9004 (tests/bench/reorder_speed).
inline constexpr int64_t kWideTileElements = 4096;
inline constexpr int64_t kNarrowTileElements = 16384;

struct BoxTiling {
  using Extents = absl::InlinedVector<int64_t, 8>;
  using Order = absl::InlinedVector<int, 8>;  // axes, outermost first

  // Sorted by destination stride, descending. Axes that are contiguous on both
  // sides are merged.
  absl::InlinedVector<BoxAxis, 8> axes;
  Order by_source;      // by source stride, descending
  Order walk;           // from one tile to the next
  Extents tile;         // of a whole tile
  Extents tile_counts;  // along each axis
  int64_t tile_count = 1;
};

// Returns a tiling whose tiles have long contiguous runs on both sides.
BoxTiling ChooseTiling(Box box, const TileOptions& options);

}  // namespace convgrad
