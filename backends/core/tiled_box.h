// Moves one box of a reorder, tile by tile: each tile passes through buffers
// that fit the first-level cache, so that both sides see contiguous runs.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/core/reorder_box.h"
#include "backends/core/strided_copy.h"

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

class TiledBox {
 public:
  TiledBox(Box box, const TileOptions& options);

  int64_t tile_count() const { return tile_count_; }
  // Returns how many steps the pinned axis makes, and its tiles per step.
  int64_t pinned_extent() const { return axes_.front().extent; }
  int64_t tiles_per_step() const { return tile_count_ / tile_counts_.front(); }
  // Units: elements, pads included.
  int64_t tile_size() const;

  // Moves the tiles [begin, end). Tiles write disjoint parts of the
  // destination. Thread-safe.
  void Run(const void* source, void* destination, int64_t begin,
           int64_t end) const;

 private:
  using Extents = absl::InlinedVector<int64_t, 8>;
  struct Tile;
  struct Buffers;

  void Normalize(Box box);
  void ChooseTile();
  void ChooseWalk();
  // Returns the tile's extents for contiguous runs of about `run_bytes`.
  Extents TileFor(int64_t run_bytes) const;
  void GrowAlong(bool by_source, int64_t run_bytes, Extents* tile) const;

  Tile TileAt(int64_t index) const;
  void Prefetch(const Tile& tile, const char* source) const;
  void MoveTile(const Tile& tile, const char* source, char* destination) const;
  const char* Gather(const Tile& tile, const char* source, StridedLoops* loops,
                     int64_t* readable, Buffers* buffers) const;
  void Permute(const Tile& tile, const char* source, const StridedLoops& loops,
               int64_t readable, char* packed) const;
  void Scatter(const Tile& tile, Buffers* buffers, char* destination) const;

  TileOptions options_;
  DataType narrow_;                        // what tiles are buffered in
  absl::InlinedVector<BoxAxis, 8> axes_;   // by destination stride, descending
  absl::InlinedVector<int, 8> by_source_;  // axes_ by source stride, descending
  int64_t source_offset_, destination_offset_;
  absl::InlinedVector<int, 8> walk_;  // the order of tiles, outermost first
  Extents tile_;
  Extents tile_counts_;
  int64_t tile_count_ = 1;
  bool is_direct_ = false;
};

}  // namespace convgrad
