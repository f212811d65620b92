// Loads and transforms tiles of the input, for one instruction set.
#if defined(BACKENDS_KERNELS_WINOGRAD_TILES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef BACKENDS_KERNELS_WINOGRAD_TILES_INL_H_
#undef BACKENDS_KERNELS_WINOGRAD_TILES_INL_H_
#else
#define BACKENDS_KERNELS_WINOGRAD_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "absl/types/span.h"
#include "backends/kernels/convolutions/block_sums-inl.h"
#include "backends/kernels/winograd/winograd.h"
#include "backends/kernels/winograd/winograd_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad::winograd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using convgrad::HWY_NAMESPACE::kHas32Registers;
using convgrad::HWY_NAMESPACE::MostRows;
using convgrad::HWY_NAMESPACE::Sums;
using convgrad::HWY_NAMESPACE::Tag;
using convgrad::HWY_NAMESPACE::Vector;

// `Magnitudes` finds whether elements are too large. It compares magnitudes as
// integers, of which those of Inf and NaN are the largest.
template <int kBlock>
class Magnitudes {
 public:
  HWY_INLINE Magnitudes() : most_(hn::Zero(kBits)) {}
  HWY_INLINE void Note(Vector<kBlock> v) {
    most_ = hn::Max(most_, hn::BitCast(kBits, hn::Abs(v)));
  }
  HWY_INLINE bool AreUsable() const {
    const auto limit = hn::BitCast(kBits, hn::Set(Tag<kBlock>(), kLimit));
    return hn::AllTrue(kBits, hn::Lt(most_, limit));
  }

 private:
  using Bits = hn::RebindToUnsigned<Tag<kBlock>>;
  static constexpr Bits kBits = {};

  hn::Vec<Bits> most_;
};

// `RowFetcher` fetches rows of planes to the second cache, some lines at a
// time, while other work runs.
class RowFetcher {
 public:
  RowFetcher() = default;
  // `floats` floats of each of `planes` planes.
  RowFetcher(const float* first, int64_t plane_stride, int64_t planes,
             int64_t floats)
      : first_(first),
        plane_stride_(plane_stride),
        planes_(floats > 0 ? planes : 0),
        floats_(floats) {}

  // Returns the lines of each of `calls` calls of Fetch.
  int64_t LinesPer(int64_t calls) const {
    const int64_t lines = planes_ * ((floats_ + kLine - 1) / kLine);
    return (lines + calls - 1) / calls;
  }
  HWY_INLINE void Fetch(int64_t lines) {
    for (; lines > 0 && planes_ > 0; --lines) {
      __builtin_prefetch(first_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < floats_) continue;
      at_ = 0;
      first_ += plane_stride_;
      --planes_;
    }
  }

 private:
  static constexpr int64_t kLine = 16;  // floats

  const float* first_ = nullptr;
  int64_t plane_stride_ = 0, planes_ = 0, floats_ = 0, at_ = 0;
};

// Some tiles, as far as they are in the plane of the first one.
struct TileRows {
  TileRows(const Shape& shape, int64_t begin, int64_t count) {
    Tile last;
    ListTiles(shape, begin, {&first, 1});
    ListTiles(shape, begin + count - 1, {&last, 1});
    const bool is_one_plane =
        last.image == first.image && last.depth == first.depth;
    end = (is_one_plane ? last.row : shape.out_height - 1) + 2 * shape.dilation;
  }

  Tile first;
  int64_t end;  // the output row behind theirs
};

// Returns the rows of the output's planes that the tiles have.
template <int kBlock>
RowFetcher OutputRows(const Shape& shape, const TileRows& tiles,
                      const float* y) {
  const int64_t row = shape.out_width * kBlock;
  const int64_t plane = shape.out_height * row;
  return {y + OutPlane(shape, tiles.first, 0) * plane + tiles.first.row * row,
          shape.out_depth * plane, shape.out_blocks(),
          (std::min(tiles.end, shape.out_height) - tiles.first.row) * row};
}

// Returns the rows that the tiles read of the deepest plane that they depend
// on. Tiles of the depth before have read the other planes.
template <int kBlock>
RowFetcher InputRows(const Shape& shape, const TileRows& tiles,
                     const float* x) {
  const int64_t row = shape.in_width * kBlock;
  const int64_t plane = shape.in_height * row;
  const int64_t depth =
      tiles.first.depth - shape.pad_front + shape.kernel_depth - 1;
  if (depth < 0 || depth >= shape.in_depth) return {};
  const int64_t begin =
      std::clamp<int64_t>(tiles.first.row - shape.pad_top, 0, shape.in_height);
  const int64_t end = std::clamp<int64_t>(
      tiles.end + 2 * shape.dilation - shape.pad_top, begin, shape.in_height);
  return {x +
              (tiles.first.image * shape.in_blocks() * shape.in_depth + depth) *
                  plane +
              begin * row,
          shape.in_depth * plane, shape.in_blocks(), (end - begin) * row};
}

// Loads four elements of a row of a tile that reaches beyond the plane.
template <int kBlock>
void LoadRowAtEdge(const Shape& shape, const float* plane, const Tile& tile,
                   int row, Vector<kBlock> (&v)[4]) {
  const Tag<kBlock> d;
  const int64_t y = tile.row - shape.pad_top + row * shape.dilation;
  const bool has_row = y >= 0 && y < shape.in_height;
  for (int j = 0; j < 4; ++j) {
    const int64_t x = tile.column - shape.pad_left + j * shape.dilation;
    const bool has = has_row && x >= 0 && x < shape.in_width;
    v[j] = has ? hn::LoadU(d, plane + (y * shape.in_width + x) * kBlock)
               : hn::Zero(d);
  }
}

// Where transformed tiles go. Units: floats.
struct TransformedTiles {
  float* at;
  int64_t position_stride;
  int64_t plane_stride;  // between planes of the input
};

// Writes four positions: row `kRow` of the transformed tiles. Returns whether
// the elements that this row checks are usable. The rows check all elements
// between them.
template <int kRow, int kBlock>
bool TransformInputRow(const Shape& shape, absl::Span<const Tile> tiles,
                       const float* x, const TransformedTiles& to) {
  // The two rows that a row of B' combines: a + b for row 1, else a - b.
  constexpr int kA = kRow == 0 ? 0 : kRow == 2 ? 2 : 1;
  constexpr int kB = kRow == 2 ? 1 : kRow == 3 ? 3 : 2;
  const Tag<kBlock> d;
  Magnitudes<kBlock> magnitudes;
  const int64_t plane = shape.in_height * shape.in_width * kBlock;
  const int64_t column = shape.dilation * kBlock;
  const int64_t row = shape.in_width * column;
  for (int64_t i = 0; i < shape.in_planes(); ++i) {
    const int64_t block = i % shape.in_blocks();
    const int64_t first_depth = i / shape.in_blocks() - shape.pad_front;
    float* at = to.at + i * to.plane_stride;
    for (const Tile& tile : tiles) {
      const int64_t depth = tile.depth + first_depth;
      if (HWY_UNLIKELY(depth < 0 || depth >= shape.in_depth)) {
        for (int j = 0; j < 4; ++j) {
          std::fill_n(at + j * to.position_stride, kBlock, 0.0F);
        }
        at += kBlock;
        continue;
      }
      const float* from =
          x +
          ((tile.image * shape.in_blocks() + block) * shape.in_depth + depth) *
              plane;
      for (size_t lane = 0; lane < kBlock; lane += hn::Lanes(d)) {
        Vector<kBlock> a[4], b[4];
        if (HWY_LIKELY(tile.is_inside)) {
          const float* first = from + tile.input * kBlock + lane;
          for (int j = 0; j < 4; ++j) {
            a[j] = hn::LoadU(d, first + kA * row + j * column);
            b[j] = hn::LoadU(d, first + kB * row + j * column);
          }
        } else {
          LoadRowAtEdge<kBlock>(shape, from + lane, tile, kA, a);
          LoadRowAtEdge<kBlock>(shape, from + lane, tile, kB, b);
        }
        // Of an inner tile, the rows 1 and 2 have its inner elements.
        if (tile.is_inner) {
          for (int j = 1; kRow == 1 && j < 3; ++j) {
            magnitudes.Note(a[j]);
            magnitudes.Note(b[j]);
          }
        } else if (kRow == 0 || kRow == 3) {
          for (int j = 0; j < 4; ++j) {
            magnitudes.Note(a[j]);
            magnitudes.Note(b[j]);
          }
        }
        for (int j = 0; j < 4; ++j) {
          a[j] = kRow == 1 ? hn::Add(a[j], b[j]) : hn::Sub(a[j], b[j]);
        }
        float* result = at + lane;
        hn::Store(hn::Sub(a[0], a[2]), d, result);
        hn::Store(hn::Add(a[1], a[2]), d, result + to.position_stride);
        hn::Store(hn::Sub(a[2], a[1]), d, result + 2 * to.position_stride);
        hn::Store(hn::Sub(a[1], a[3]), d, result + 3 * to.position_stride);
      }
      at += kBlock;
    }
  }
  return magnitudes.AreUsable();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad::winograd
HWY_AFTER_NAMESPACE();

#endif
