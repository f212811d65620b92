// Transposes squares of 16-bit or 32-bit elements in registers, for files that
// highway compiles once per CPU type. Only such files may include this header,
// outside their namespaces.
#if defined(CONVGRAD_TRANSPOSE_SQUARE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVGRAD_TRANSPOSE_SQUARE_INL_H_
#undef CONVGRAD_TRANSPOSE_SQUARE_INL_H_
#else
#define CONVGRAD_TRANSPOSE_SQUARE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Rows and columns of the squares that are transposed in registers.
#if HWY_TARGET == HWY_SCALAR
template <class T>
constexpr int kSide = 1;
#else
template <class T>
constexpr int kSide = sizeof(T) == 4 && HWY_ARCH_X86&& HWY_TARGET <= HWY_AVX2
                          ? 8
                          : 16 / sizeof(T);
#endif

// Vector of one row or column of a square.
template <class T>
using Tag = hn::CappedTag<T, kSide<T>>;

#if HWY_TARGET != HWY_SCALAR
template <class Wide, class D, class V>
HWY_INLINE void Interleave(D d, const V& a, const V& b, V* low, V* high) {
  const hn::Repartition<Wide, D> wide;
  const auto x = hn::BitCast(wide, a), y = hn::BitCast(wide, b);
  *low = hn::BitCast(d, hn::InterleaveLower(wide, x, y));
  *high = hn::BitCast(d, hn::InterleaveUpper(wide, x, y));
}

// Transposes 4 x 4 in each 128-bit block.
template <class D, class V>
HWY_INLINE void TransposeBlocks(D d, V* v) {
  V low01, high01, low23, high23;
  Interleave<uint32_t>(d, v[0], v[1], &low01, &high01);
  Interleave<uint32_t>(d, v[2], v[3], &low23, &high23);
  Interleave<uint64_t>(d, low01, low23, &v[0], &v[1]);
  Interleave<uint64_t>(d, high01, high23, &v[2], &v[3]);
}

template <class V>
HWY_INLINE void Transpose32(Tag<uint32_t> d, V* v) {
  TransposeBlocks(d, v);
  if constexpr (kSide<uint32_t> == 8) {
    TransposeBlocks(d, v + 4);
    for (int i = 0; i < 4; ++i) {
      const V low = hn::ConcatLowerLower(d, v[i + 4], v[i]);
      v[i + 4] = hn::ConcatUpperUpper(d, v[i + 4], v[i]);
      v[i] = low;
    }
  }
}

// Transposes 8 x 8 in each 128-bit block.
template <class D, class V>
HWY_INLINE void Transpose16(D d, V* v) {
  V pairs[8], quads[8];
  // pairs[2i], [2i+1]: columns 0..3 and 4..7 of rows 2i and 2i+1.
  for (int i = 0; i < 4; ++i) {
    Interleave<uint16_t>(d, v[2 * i], v[2 * i + 1], &pairs[2 * i],
                         &pairs[2 * i + 1]);
  }
  // quads[4h + j]: columns 2j and 2j+1 of rows 4h..4h+3.
  for (int h = 0; h < 2; ++h) {
    for (int j = 0; j < 2; ++j) {
      Interleave<uint32_t>(d, pairs[4 * h + j], pairs[4 * h + 2 + j],
                           &quads[4 * h + 2 * j], &quads[4 * h + 2 * j + 1]);
    }
  }
  for (int j = 0; j < 4; ++j) {
    Interleave<uint64_t>(d, quads[j], quads[4 + j], &v[2 * j], &v[2 * j + 1]);
  }
}
#endif

// Transposes the square whose rows are v[0] to v[kSide - 1].
template <class D, class V>
HWY_INLINE void TransposeSquare([[maybe_unused]] D d, [[maybe_unused]] V* v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    Transpose32(d, v);
  } else {
    Transpose16(d, v);
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif  // CONVGRAD_TRANSPOSE_SQUARE_INL_H_
