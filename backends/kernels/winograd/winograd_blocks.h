// Divides a pass of Winograd's algorithm into parts whose memory stays in a
// core's caches.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "backends/kernels/winograd/winograd.h"

namespace convgrad::winograd {

inline constexpr int64_t kPositions = 16;  // of a transformed tile
inline constexpr int64_t kMostRows = 128;  // of a part at a time

// Returns the floats between two positions of `rows` rows of `block` floats.
// All positions of a row are in use at a time. Distances of whole pages would
// put them into the same set of the first cache.
int64_t PositionStride(int64_t rows, int64_t block);

// Returns the blocks of the pass's output channels that are transformed.
int64_t PassOutBlocks(const Weights& weights);

// Forward is cut into blocks of tiles, and these into groups of blocks of
// output channels. A part computes all of its output elements.
struct ForwardBlocks {
  explicit ForwardBlocks(const Shape& shape);

  int64_t tiles;         // of a block; the last block has fewer
  int64_t tile_blocks;   // number of blocks
  int64_t group_blocks;  // blocks of channels of a group: even; the last group
                         // has fewer
  int64_t groups;
  // Floats between positions.
  int64_t input_stride, weight_stride, product_stride;

  int64_t parts() const { return tile_blocks * groups; }
};

// BackwardWeight is cut into pieces of the tiles. A part computes one of the
// four rows of a piece's transformed tiles, or all of them, which reads the
// tensors once from memory. Each row of a piece has sums of its own.
struct GradientBlocks {
  explicit GradientBlocks(const Shape& shape);

  int64_t tiles;        // that a part takes at a time
  int64_t piece_tiles;  // of a piece; the last piece has fewer
  int64_t pieces;
  // Floats between positions.
  int64_t input_stride, gradient_stride, sum_stride;

  // Returns the rows of transformed tiles that a part takes, 1 or 4. The sums
  // are the same.
  int64_t PartRows(int64_t threads) const;
};

// The position of a tile.
struct Tile {
  int64_t image, depth;
  int64_t row, column;  // of its first output element
  // The position of its first input element in the plane. Units: elements.
  int64_t input;
  // Whether all of its input is in a plane, if that is in the image.
  bool is_inside;
  // Whether its outer input elements are inner ones of other tiles.
  bool is_inner;
};

// Returns the position of a block of the pass's output channels, in the tile's
// plane, among those of all images.
inline int64_t OutPlane(const Shape& shape, const Tile& tile, int64_t block) {
  const int64_t blocks =
      shape.image_out_blocks == 0 ? shape.out_blocks() : shape.image_out_blocks;
  return (tile.image * blocks + shape.first_out_block + block) *
             shape.out_depth +
         tile.depth;
}

// Writes the tiles [first, first + tiles.size()).
void ListTiles(const Shape& shape, int64_t first, absl::Span<Tile> tiles);

}  // namespace convgrad::winograd
