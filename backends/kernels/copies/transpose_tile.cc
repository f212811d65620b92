#include "backends/kernels/copies/transpose_tile.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/copies/transpose_tile.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/copies/transpose_square-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

// The arguments of one transposition.
template <class T>
struct Matrix {
  const T* source;
  T* destination;
  int64_t row_pitch, column_pitch;
};

// Transposes kSide columns and stores `columns` of them. Rows from `rows` on
// are zeros.
template <class T, bool kWhole>
HWY_INLINE void RunSquare(const Matrix<T>& m, int rows, int columns) {
  const Tag<T> d;
  hn::Vec<Tag<T>> v[kSide<T>];
  const T* from = m.source;
  for (int i = 0; i < kSide<T>; ++i) {
    v[i] = kWhole || i < rows ? hn::LoadU(d, from) : hn::Zero(d);
    from += m.row_pitch;
  }
  TransposeSquare(d, v);
  T* to = m.destination;
  for (int i = 0; i < kSide<T>; ++i) {
    if (kWhole || i < columns) hn::StoreU(v[i], d, to);
    to += m.column_pitch;
  }
}

// Transposes elements of `stored` rows; those from `rows` on are zeros.
template <class T>
HWY_INLINE void RunScalar(const Matrix<T>& m, int64_t rows, int64_t stored,
                          int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    T* to = m.destination + c * m.column_pitch;
    const T* from = m.source + c;
    for (int64_t r = 0; r < stored; ++r) {
      T value = 0;
      if (r < rows) std::memcpy(&value, from + r * m.row_pitch, sizeof(T));
      std::memcpy(to + r, &value, sizeof(T));
    }
  }
}

// Up to this many rows or columns are faster one by one.
constexpr int64_t kFew = 2;

// Transposes kSide rows; those from `rows` on are zeros. `readable` elements
// may be read from m.source on.
template <class T>
HWY_INLINE void RunStrip(Matrix<T> m, int rows, int64_t columns,
                         int64_t readable) {
  constexpr int kStep = kSide<T>;
  const bool is_whole = rows == kStep;
  for (; columns >= kStep; columns -= kStep) {
    is_whole ? RunSquare<T, true>(m, rows, kStep)
             : RunSquare<T, false>(m, rows, kStep);
    m.source += kStep;
    m.destination += kStep * m.column_pitch;
    readable -= kStep;
  }
  if (columns == 0) return;
  const int64_t end = rows == 0 ? 0 : (rows - 1) * m.row_pitch + kStep;
  if (end > readable || columns <= kFew) {
    RunScalar(m, rows, kStep, columns);
  } else {
    RunSquare<T, false>(m, rows, static_cast<int>(columns));
  }
}

// Transposes kRows rows, which fill the destination: the channels of an image.
template <class T, int kRows>
void RunFewRows(Matrix<T> m, int64_t columns) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; columns >= lanes; columns -= lanes) {
    const auto row0 = hn::LoadU(d, m.source);
    const auto row1 = hn::LoadU(d, m.source + m.row_pitch);
    if constexpr (kRows == 2) {
      hn::StoreInterleaved2(row0, row1, d, m.destination);
    } else {
      const auto row2 = hn::LoadU(d, m.source + 2 * m.row_pitch);
      if constexpr (kRows == 3) {
        hn::StoreInterleaved3(row0, row1, row2, d, m.destination);
      } else {
        const auto row3 = hn::LoadU(d, m.source + 3 * m.row_pitch);
        hn::StoreInterleaved4(row0, row1, row2, row3, d, m.destination);
      }
    }
    m.source += lanes;
    m.destination += kRows * lanes;
  }
  RunScalar(m, kRows, kRows, columns);
}

template <class T>
HWY_INLINE void RunMatrix(const TransposeTile& tile, const Matrix<T>& matrix,
                          int64_t readable) {
  if (tile.rows == tile.column_pitch) {
    if (tile.rows == 2) return RunFewRows<T, 2>(matrix, tile.columns);
    if (tile.rows == 3) return RunFewRows<T, 3>(matrix, tile.columns);
    if (tile.rows == 4) return RunFewRows<T, 4>(matrix, tile.columns);
  }
  constexpr int kStep = kSide<T>;
  const int64_t width = tile.padded_rows;
  for (int64_t row = 0; row < width; row += kStep) {
    const int64_t rest = width - row;
    const bool is_scalar = rest < kStep && (rest <= kFew || width < kStep);
    // The last strip may overlap the one before.
    if (!is_scalar) row = std::min(row, width - kStep);
    const Matrix<T> strip = {matrix.source + row * matrix.row_pitch,
                             matrix.destination + row, matrix.row_pitch,
                             matrix.column_pitch};
    const auto present = static_cast<int>(
        std::clamp<int64_t>(tile.rows - row, 0, is_scalar ? rest : kStep));
    if (is_scalar) return RunScalar(strip, present, rest, tile.columns);
    RunStrip<T>(strip, present, tile.columns, readable - row * tile.row_pitch);
  }
}

template <class T>
void TransposeAll(const TransposeTile& tile, const void* source,
                  void* destination) {
  ForEachStep(tile.outer, 0, 0, [&](int64_t source_offset, int64_t offset) {
    const Matrix<T> matrix = {static_cast<const T*>(source) + source_offset,
                              static_cast<T*>(destination) + offset,
                              tile.row_pitch, tile.column_pitch};
    RunMatrix(tile, matrix, tile.readable - source_offset);
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
