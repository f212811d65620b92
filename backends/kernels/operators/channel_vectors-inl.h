// Loads and stores vectors along the channels of an activation, for files that
// highway compiles once per CPU type. Only such files may include this header,
// outside their namespaces.
#if defined(CONVGRAD_CHANNEL_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVGRAD_CHANNEL_VECTORS_INL_H_
#undef CONVGRAD_CHANNEL_VECTORS_INL_H_
#else
#define CONVGRAD_CHANNEL_VECTORS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "backends/core/data_type.h"
#include "backends/kernels/copies/element_vectors-inl.h"
#include "backends/kernels/operators/channel_rows.h"
#include "backends/kernels/operators/pointwise.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns elements as f32; converts bf16 bits and f16.
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

template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const hwy::float16_t* p) {
  return LoadHalf(d, reinterpret_cast<const uint16_t*>(p));
}

// Stores bypass the caches if kStream, except for vectors of 8 bytes, for which
// highway 1.0.3 streams 16 bytes.
template <bool kStream, class D, class T>
HWY_INLINE void Put(D d, hn::Vec<D> value, T* p) {
  if constexpr (kStream && hn::MaxLanes(D()) * sizeof(T) >= 16) {
    hn::Stream(value, d, p);
  } else {
    hn::StoreU(value, d, p);
  }
}

// Stores bypass the caches if kStream (Put).
template <bool kStream = false, class D>
HWY_INLINE void StoreElements(D d, hn::Vec<D> value, float* p) {
  Put<kStream>(d, value, p);
}

template <bool kStream = false, class D>
HWY_INLINE void StoreElements(D d, hn::Vec<D> value, uint16_t* p) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(di, BitsOfBf16(d, value));
  Put<kStream>(d16, hn::DemoteTo(d16, bits), p);
}

// Returns the value that a load gives after `value` was stored in elements T.
template <class T, class D>
HWY_INLINE hn::Vec<D> RoundedTo(D d, hn::Vec<D> value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else {
    return hn::BitCast(d, hn::ShiftLeft<16>(BitsOfBf16(d, value)));
  }
}

// Returns whether rows of `pitch` elements from p on may be streamed, because
// the widest vectors fill them and are aligned.
template <class T>
HWY_INLINE bool FillsVectors(const T* p, size_t pitch) {
  const size_t bytes = hn::Lanes(hn::CappedTag<float, 16>()) * sizeof(T);
  return reinterpret_cast<uintptr_t>(p) % bytes == 0 &&
         pitch * sizeof(T) % bytes == 0;
}

// Calls body(stream) with a constant that says whether results, whose rows of a
// block's channels begin at `first`, bypass the caches.
template <class T, class Body>
HWY_INLINE void Streamed(const ChannelBlocks& results, const T* first,
                         const Body& body) {
  if (StreamsResult(results) && FillsVectors(first, results.block)) {
    body(std::true_type());
    hwy::FlushStream();
  } else {
    body(std::false_type());
  }
}

// Returns the pointer advanced by `at` elements; null stays null.
template <class T, class Void>
T* Moved(Void* tensor, int64_t at) {
  return tensor == nullptr ? nullptr : static_cast<T*>(tensor) + at;
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

// Calls body with kNone, kRelu or kRelu6 as a constant.
template <class Body>
HWY_INLINE void WithRectifier(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kRelu:
      return body(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kRelu6:
      return body(std::integral_constant<Activation, Activation::kRelu6>());
    default:
      return body(std::integral_constant<Activation, Activation::kNone>());
  }
}

// Returns kRelu or kRelu6 of x, or x itself (kNone). NaN stays NaN.
template <Activation kKind, class D>
HWY_INLINE hn::Vec<D> Rectify(D d, hn::Vec<D> x) {
  if constexpr (kKind == Activation::kNone) {
    return x;
  } else {
    const auto y = hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), x);
    if constexpr (kKind == Activation::kRelu) return y;
    const auto six = hn::Set(d, 6.0f);
    return hn::IfThenElse(hn::Gt(x, six), six, y);
  }
}

// Returns dy where the activation isn't flat, else 0. `saved` is the operand or
// the result; the activation is flat where either is at or beyond a limit.
template <Activation kKind, class D>
HWY_INLINE hn::Vec<D> RectifyGradient(D d, hn::Vec<D> saved, hn::Vec<D> dy) {
  if constexpr (kKind == Activation::kNone) {
    return dy;
  } else {
    const auto open = hn::IfThenZeroElse(hn::Le(saved, hn::Zero(d)), dy);
    if constexpr (kKind == Activation::kRelu) return open;
    return hn::IfThenZeroElse(hn::Ge(saved, hn::Set(d, 6.0f)), open);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif
