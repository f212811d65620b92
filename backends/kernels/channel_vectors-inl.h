// Vectors along the channels of an activation, for the files that highway
// compiles once per kind of CPU. Included by those only, inside of none of
// their namespaces.
#if defined(CONVGRAD_CHANNEL_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVGRAD_CHANNEL_VECTORS_INL_H_
#undef CONVGRAD_CHANNEL_VECTORS_INL_H_
#else
#define CONVGRAD_CHANNEL_VECTORS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>

#include "backends/core/data_type.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Elements as f32: themselves, or bf16 bits.
template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  return hn::BitCast(d,
                     hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, p))));
}

// Stores bypass the caches if kStream. Highway 1.0.3 streams 16 bytes of a
// vector that has only 8.
template <bool kStream, class D, class T>
HWY_INLINE void Put(D d, hn::Vec<D> value, T* p) {
  if constexpr (kStream && hn::MaxLanes(D()) * sizeof(T) >= 16) {
    hn::Stream(value, d, p);
  } else {
    hn::StoreU(value, d, p);
  }
}

template <bool kStream = false, class D>
HWY_INLINE void StoreElements(D d, hn::Vec<D> value, float* p) {
  Put<kStream>(d, value, p);
}

// Rounds to nearest even; NaN stays a (quiet) NaN.
template <bool kStream = false, class D>
HWY_INLINE void StoreElements(D /*d*/, hn::Vec<D> value, uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  const auto high = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  Put<kStream>(d16, hn::DemoteTo(d16, hn::BitCast(di, high)), p);
}

// Whether rows of `pitch` elements from p on may be streamed: the widest
// vectors fill them and are aligned.
template <class T>
HWY_INLINE bool FillsVectors(const T* p, size_t pitch) {
  const size_t bytes = hn::Lanes(hn::CappedTag<float, 16>()) * sizeof(T);
  return reinterpret_cast<uintptr_t>(p) % bytes == 0 &&
         pitch * sizeof(T) % bytes == 0;
}

// Calls body(d, i) so that vectors of d's lanes from element i on cover
// [0, count): the widest ones, then narrower ones.
template <class Body>
HWY_INLINE void ForVectors(size_t count, const Body& body) {
  const hn::CappedTag<float, 16> wide;
  const hn::CappedTag<float, 4> narrow;
  const hn::CappedTag<float, 1> single;
  size_t i = 0;
  for (; i + hn::Lanes(wide) <= count; i += hn::Lanes(wide)) body(wide, i);
  for (; i + hn::Lanes(narrow) <= count; i += hn::Lanes(narrow)) {
    body(narrow, i);
  }
  for (; i < count; ++i) body(single, i);
}

// Calls body with a null pointer to the elements of `dtype`: float, or uint16_t
// for bf16.
template <class Body>
HWY_INLINE void WithElements(DataType dtype, const Body& body) {
  if (dtype == DataType::kBF16) {
    body(static_cast<uint16_t*>(nullptr));
  } else {
    body(static_cast<float*>(nullptr));
  }
}

// ReLU, which lets NaN through.
template <class D>
HWY_INLINE hn::Vec<D> Relu(D d, hn::Vec<D> x) {
  return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), x);
}

// Its gradient, from its result: what isn't above zero, or NaN, blocks dy.
template <class D>
HWY_INLINE hn::Vec<D> MaskByResult(D d, hn::Vec<D> y, hn::Vec<D> dy) {
  return hn::IfThenZeroElse(hn::Le(y, hn::Zero(d)), dy);
}

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif
