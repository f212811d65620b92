#include "backends/core/transpose_tile.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/core/transpose_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// 128 bits are enough: a tile of 8 x 8 or 4 x 4 in registers outruns memory.
template <class T>
using Tag = hn::CappedTag<T, 16 / sizeof(T)>;
template <class T>
constexpr int kSide = 16 / sizeof(T);

template <class Wide, class T, class V>
HWY_INLINE void Interleave(const V& a, const V& b, V* low, V* high) {
  const Tag<Wide> wide;
  const Tag<T> d;
  const auto x = hn::BitCast(wide, a), y = hn::BitCast(wide, b);
  *low = hn::BitCast(d, hn::InterleaveLower(wide, x, y));
  *high = hn::BitCast(d, hn::InterleaveUpper(wide, x, y));
}

template <class V>
HWY_INLINE void TransposeSquare(Tag<uint32_t>, V* v) {
  V a, b, c, d;
  Interleave<uint32_t, uint32_t>(v[0], v[1], &a, &b);
  Interleave<uint32_t, uint32_t>(v[2], v[3], &c, &d);
  Interleave<uint64_t, uint32_t>(a, c, &v[0], &v[1]);
  Interleave<uint64_t, uint32_t>(b, d, &v[2], &v[3]);
}

template <class V>
HWY_INLINE void TransposeSquare(Tag<uint16_t>, V* v) {
  V pairs[8], quads[8];
  // pairs[2i], [2i+1]: columns 0..3 and 4..7 of rows 2i and 2i+1.
  for (int i = 0; i < 4; ++i) {
    Interleave<uint16_t, uint16_t>(v[2 * i], v[2 * i + 1], &pairs[2 * i],
                                   &pairs[2 * i + 1]);
  }
  // quads[4h + j]: columns 2j and 2j+1 of rows 4h..4h+3.
  for (int h = 0; h < 2; ++h) {
    for (int j = 0; j < 2; ++j) {
      Interleave<uint32_t, uint16_t>(pairs[4 * h + j], pairs[4 * h + 2 + j],
                                     &quads[4 * h + 2 * j],
                                     &quads[4 * h + 2 * j + 1]);
    }
  }
  for (int j = 0; j < 4; ++j) {
    Interleave<uint64_t, uint16_t>(quads[j], quads[4 + j], &v[2 * j],
                                   &v[2 * j + 1]);
  }
}

template <class T>
class Transposer {
 public:
  Transposer(const TransposeTile& tile, const T* source, T* destination,
             int64_t readable)
      : tile_(tile),
        source_(source),
        destination_(destination),
        readable_(readable) {}

  void Run() const {
    const int64_t width = tile_.padded_rows;
    int64_t row = 0;
    for (; row + kSide<T> <= width; row += kSide<T>) RunStrip(row);
    const int64_t rest = width - row;
    if (rest == 0) return;
    if (rest <= kFew || width < kSide<T>) {
      RunScalar(row, rest, 0, tile_.columns);
    } else {
      RunStrip(width - kSide<T>);
    }
  }

 private:
  // So few rows or columns are faster one by one.
  static constexpr int64_t kFew = 2;

  // Transposes kSide rows from `row` on; those past the last are zeros.
  void RunStrip(int64_t row) const {
    const int present =
        static_cast<int>(std::clamp<int64_t>(tile_.rows - row, 0, kSide<T>));
    int64_t column = 0;
    for (; column + kSide<T> <= tile_.columns; column += kSide<T>) {
      if (present == kSide<T>) {
        RunSquare<true>(row, present, column, kSide<T>);
      } else {
        RunSquare<false>(row, present, column, kSide<T>);
      }
    }
    const int64_t rest = tile_.columns - column;
    if (rest == 0) return;
    const int64_t end =
        present == 0 ? 0
                     : (row + present - 1) * tile_.row_pitch + column + kSide<T>;
    if (rest <= kFew || end > readable_) {
      RunScalar(row, kSide<T>, column, rest);
    } else {
      RunSquare<false>(row, present, column, static_cast<int>(rest));
    }
  }

  template <bool kWhole>
  HWY_INLINE void RunSquare(int64_t row, int present, int64_t column,
                            int columns) const {
    const Tag<T> d;
    hn::Vec<Tag<T>> v[kSide<T>];
    const T* from = source_ + row * tile_.row_pitch + column;
    for (int i = 0; i < kSide<T>; ++i) {
      if (kWhole || i < present) {
        v[i] = hn::LoadU(d, from + i * tile_.row_pitch);
      } else {
        v[i] = hn::Zero(d);
      }
    }
    TransposeSquare(d, v);
    T* to = destination_ + column * tile_.column_pitch + row;
    for (int i = 0; i < kSide<T>; ++i) {
      if (kWhole || i < columns) hn::StoreU(v[i], d, to + i * tile_.column_pitch);
    }
  }

  void RunScalar(int64_t row, int64_t rows, int64_t column,
                 int64_t columns) const {
    for (int64_t c = column; c < column + columns; ++c) {
      T* to = destination_ + c * tile_.column_pitch;
      for (int64_t r = row; r < row + rows; ++r) {
        T value = 0;
        if (r < tile_.rows) {
          std::memcpy(&value, source_ + r * tile_.row_pitch + c, sizeof(T));
        }
        std::memcpy(to + r, &value, sizeof(T));
      }
    }
  }

  const TransposeTile& tile_;
  const T* const source_;
  T* const destination_;
  const int64_t readable_;
};

template <class T>
void TransposeAll(const TransposeTile& tile, const void* source,
                  void* destination) {
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(destination);
  ForEachStep(tile.outer, 0, 0, [&](int64_t source_offset, int64_t offset) {
    Transposer<T>(tile, from + source_offset, to + offset,
                  tile.readable - source_offset)
        .Run();
  });
}

void TransposeElements(const TransposeTile& tile, const void* source,
                       void* destination) {
  if (tile.element_bytes == 4) {
    TransposeAll<uint32_t>(tile, source, destination);
  } else {
    TransposeAll<uint16_t>(tile, source, destination);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {
HWY_EXPORT(TransposeElements);
}  // namespace

void Transpose(const TransposeTile& tile, const void* source,
               void* destination) {
  HWY_DYNAMIC_DISPATCH(TransposeElements)(tile, source, destination);
}

}  // namespace convgrad
#endif  // HWY_ONCE
