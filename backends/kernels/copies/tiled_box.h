// `TiledBox` moves one box of a reorder tile by tile. Each tile passes through
// buffers that fit the first-level cache, so that both sides are accessed in
// contiguous runs.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/kernels/copies/box_tiling.h"
#include "backends/kernels/copies/reorder_box.h"
#include "backends/kernels/copies/strided_copy.h"

namespace convgrad {

class TiledBox {
 public:
  TiledBox(Box box, const TileOptions& options);

  int64_t tile_count() const { return tiling_.tile_count; }
  // Returns the size of a tile. Units: elements, pads included.
  int64_t tile_size() const;

  // Moves the tiles [begin, end). Tiles write disjoint parts of the
  // destination. Thread-safe.
  void Run(const void* source, void* destination, int64_t begin,
           int64_t end) const;

 private:
  using Extents = BoxTiling::Extents;
  struct Tile;
  struct Buffers;

  Tile TileAt(int64_t index) const;
  void MoveTile(const Tile& tile, const char* source, char* destination) const;
  const char* Gather(const Tile& tile, const char* source, StridedLoops* loops,
                     int64_t* readable, Buffers* buffers) const;
  void Permute(const Tile& tile, const char* source, const StridedLoops& loops,
               int64_t readable, char* packed) const;
  void Scatter(const Tile& tile, Buffers* buffers, char* destination) const;

  TileOptions options_;
  DataType narrow_;  // dtype of buffered tiles
  int64_t source_offset_, destination_offset_;
  BoxTiling tiling_;
  bool is_direct_;
};

}  // namespace convgrad
