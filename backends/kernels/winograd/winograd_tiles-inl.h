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

// Loads four elements of a row of a tile. `plane` is that of the image and the
// channels.
template <int kBlock>
HWY_INLINE void LoadRow(const Shape& shape, const float* plane,
                        const Tile& tile, int row, Vector<kBlock> (&v)[4]) {
  const Tag<kBlock> d;
  const int64_t step = shape.dilation;
  const int64_t y = tile.row - shape.pad_top + row * step;
  const int64_t x = tile.column - shape.pad_left;
  if (HWY_LIKELY(tile.is_inside)) {
    const float* from = plane + (y * shape.in_width + x) * kBlock;
    for (int j = 0; j < 4; ++j) v[j] = hn::LoadU(d, from + j * step * kBlock);
    return;
  }
  const bool has_row = y >= 0 && y < shape.in_height;
  for (int j = 0; j < 4; ++j) {
    const int64_t at = x + j * step;
    const bool has = has_row && at >= 0 && at < shape.in_width;
    v[j] = has ? hn::LoadU(d, plane + (y * shape.in_width + at) * kBlock)
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
        LoadRow<kBlock>(shape, from + lane, tile, kA, a);
        LoadRow<kBlock>(shape, from + lane, tile, kB, b);
        // Of an inner tile, the rows 1 and 2 have its inner elements.
        const bool checks = tile.is_inner ? kRow == 1 : kRow == 0 || kRow == 3;
        for (int j = 0; checks && j < 4; ++j) {
          if (tile.is_inner && (j == 0 || j == 3)) continue;
          magnitudes.Note(a[j]);
          magnitudes.Note(b[j]);
        }
        for (int j = 0; j < 4; ++j) {
          a[j] = kRow == 1 ? hn::Add(a[j], b[j]) : hn::Sub(a[j], b[j]);
        }
        float* row = at + lane;
        hn::Store(hn::Sub(a[0], a[2]), d, row);
        hn::Store(hn::Add(a[1], a[2]), d, row + to.position_stride);
        hn::Store(hn::Sub(a[2], a[1]), d, row + 2 * to.position_stride);
        hn::Store(hn::Sub(a[1], a[3]), d, row + 3 * to.position_stride);
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
