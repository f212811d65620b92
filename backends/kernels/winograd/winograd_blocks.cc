#include "backends/kernels/winograd/winograd_blocks.h"

#include <algorithm>
#include <utility>

#include "backends/core/checked_math.h"

namespace convgrad::winograd {
namespace {

// Tiles of a block, measured on a Xeon (Sapphire Rapids) with 64 to 512
// channels: with fewer, weights are read more often from the last cache.
constexpr int64_t kForwardTiles = 112;
// Parts that keep the threads of a larger machine busy.
constexpr int64_t kWantedParts = 16;
// Blocks of output channels whose products take far longer than transforming
// the input once more.
constexpr int64_t kLeastGroup = 8;
// Pieces, and floats that all of their sums may have, because each piece's are
// added once.
constexpr int64_t kMostPieces = 16;
constexpr int64_t kMostSums = int64_t{2} << 20;

// Returns the first output element of the tile with this number along an axis
// of so many. The tiles of an interleaved image follow each other.
int64_t FirstOutput(int64_t size, int64_t dilation, int64_t tile) {
  const int64_t longer = size % dilation, least = size / dilation;
  int64_t image = 0, of_one = (least + 2) / 2;
  if (tile >= longer * of_one) {
    tile -= longer * of_one;
    image = longer;
    of_one = (least + 1) / 2;
  }
  return image + tile / of_one + 2 * dilation * (tile % of_one);
}

}  // namespace

Shape SomeOutputs(const Shape& shape, int64_t first_block, int64_t count) {
  Shape some = shape;
  const int64_t first = first_block * shape.block;
  some.out_channels = std::min(shape.out_channels - first, count * shape.block);
  some.first_out_block = first_block;
  some.image_out_blocks = shape.out_blocks();
  return some;
}

Shape BackwardDataShape(const Shape& forward) {
  Shape shape = forward;
  std::swap(shape.in_channels, shape.out_channels);
  std::swap(shape.in_height, shape.out_height);
  std::swap(shape.in_width, shape.out_width);
  std::swap(shape.in_depth, shape.out_depth);
  shape.pad_top = 2 * forward.dilation - forward.pad_top;
  shape.pad_left = 2 * forward.dilation - forward.pad_left;
  shape.pad_front = forward.kernel_depth - 1 - forward.pad_front;
  return shape;
}

int64_t PositionStride(int64_t rows, int64_t block) {
  constexpr int64_t kPage = 1024, kLine = 16;  // floats
  return CeilDiv(rows * block, kPage) * kPage + 5 * kLine;
}

int64_t PassOutBlocks(const Weights& weights) {
  if (weights.out_blocks >= 0) return weights.out_blocks;
  return CeilDiv(weights.is_turned ? weights.in_channels : weights.out_channels,
                 weights.block);
}

int64_t TransformedFloats(const Weights& weights) {
  const int64_t in_blocks =
      CeilDiv(weights.is_turned ? weights.out_channels : weights.in_channels,
              weights.block);
  return kPositions *
         PositionStride(PassOutBlocks(weights) * weights.kernel_depth *
                            in_blocks * weights.block,
                        weights.block);
}

ForwardBlocks::ForwardBlocks(const Shape& shape) {
  tile_blocks = std::max<int64_t>(CeilDiv(shape.tiles(), kForwardTiles), 1);
  tiles = CeilDiv(shape.tiles(), tile_blocks);
  const int64_t wanted = std::clamp<int64_t>(
      kWantedParts / tile_blocks, 1,
      std::max<int64_t>(shape.out_blocks() / kLeastGroup, 1));
  group_blocks = CeilDiv(CeilDiv(shape.out_blocks(), wanted), 2) * 2;
  groups = CeilDiv(shape.out_blocks(), group_blocks);
  input_stride = PositionStride(shape.in_planes() * tiles, shape.block);
  weight_stride = PositionStride(
      shape.out_blocks() * shape.in_planes() * shape.block, shape.block);
  product_stride = PositionStride(2 * tiles, shape.block);
}

int64_t ForwardParts(const Shape& shape) {
  return ForwardBlocks(shape).parts();
}

int64_t ForwardScratch(const Shape& shape) {
  const ForwardBlocks blocks(shape);
  return 4 * (blocks.input_stride + blocks.product_stride +
              blocks.group_blocks * blocks.tiles * shape.block);
}

GradientBlocks::GradientBlocks(const Shape& shape) {
  tiles = std::clamp<int64_t>(shape.tiles(), 1, kMostRows);
  sum_stride = PositionStride(
      shape.out_blocks() * shape.in_planes() * shape.block, shape.block);
  // The stride for all output channels, because a part of the channels must
  // have the same pieces.
  const int64_t whole_stride =
      PositionStride(std::max(shape.image_out_blocks, shape.out_blocks()) *
                         shape.in_planes() * shape.block,
                     shape.block);
  const int64_t wanted =
      std::clamp<int64_t>(std::min(shape.tiles() / (4 * tiles),
                                   kMostSums / (kPositions * whole_stride)),
                          1, kMostPieces);
  const int64_t blocks = std::max<int64_t>(CeilDiv(shape.tiles(), tiles), 1);
  piece_tiles = CeilDiv(blocks, wanted) * tiles;
  pieces = std::max<int64_t>(CeilDiv(shape.tiles(), piece_tiles), 1);
  input_stride = PositionStride(shape.in_planes() * tiles, shape.block);
  gradient_stride = PositionStride(shape.out_blocks() * tiles, shape.block);
}

int64_t GradientBlocks::PartRows(int64_t threads) const {
  // Pieces of the slowest thread. One more than the others have may cost an
  // eighth of the time, as much as reading the tensors once may save.
  const int64_t most = CeilDiv(pieces, threads);
  return 8 * most * threads <= 9 * pieces ? 4 : 1;
}

int64_t GradientScratch(const Shape& shape) {
  const GradientBlocks blocks(shape);
  return 4 * (blocks.input_stride + blocks.gradient_stride);
}

int64_t GradientSums(const Shape& shape) {
  const GradientBlocks blocks(shape);
  return blocks.pieces * kPositions * blocks.sum_stride;
}

void ListTiles(const Shape& shape, int64_t first, absl::Span<Tile> tiles) {
  const int64_t step = 2 * shape.dilation, reach = 3 * shape.dilation;
  const int64_t columns = shape.tile_columns(), rows = shape.tile_rows();
  int64_t column = first % columns;
  int64_t row = first / columns % rows;
  int64_t depth = first / columns / rows % shape.out_depth;
  int64_t image = first / columns / rows / shape.out_depth;
  for (Tile& tile : tiles) {
    const int64_t y = FirstOutput(shape.out_height, shape.dilation, row);
    const int64_t x = FirstOutput(shape.out_width, shape.dilation, column);
    const int64_t top = y - shape.pad_top, left = x - shape.pad_left;
    const bool is_inside = top >= 0 && left >= 0 &&
                           top + reach < shape.in_height &&
                           left + reach < shape.in_width;
    const bool is_inner = is_inside && y >= step && x >= step &&
                          y + step < shape.out_height &&
                          x + step < shape.out_width;
    tile = {image,     depth,   y, x, top * shape.in_width + left,
            is_inside, is_inner};
    if (++column < columns) continue;
    column = 0;
    if (++row < rows) continue;
    row = 0;
    if (++depth < shape.out_depth) continue;
    depth = 0;
    ++image;
  }
}

}  // namespace convgrad::winograd
