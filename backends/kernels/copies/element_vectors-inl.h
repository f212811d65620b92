// Loads f32 vectors from elements of any dtype and stores them, for files that
// highway compiles once per CPU type. Only such files may include this header,
// outside their namespaces.
#if defined(CONVGRAD_ELEMENT_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVGRAD_ELEMENT_VECTORS_INL_H_
#undef CONVGRAD_ELEMENT_VECTORS_INL_H_
#else
#define CONVGRAD_ELEMENT_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::CappedTag<float, 16>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using I32Tag = hn::RebindToSigned<F32Tag>;
using U16Tag = hn::Rebind<uint16_t, F32Tag>;
using F16Tag = hn::Rebind<hwy::float16_t, F32Tag>;
using F32Vector = hn::Vec<F32Tag>;
using U32Vector = hn::Vec<U32Tag>;

// True with F16C or AVX-512. Without them highway 1.0.3's conversions truncate
// and lose Inf and NaN, so the functions below use integer operations.
constexpr bool kHasNativeHalf = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2;

// Returns a mask of the lanes with left > right. Requires: all below 2^31.
template <class V>
HWY_INLINE auto Above(V left, uint32_t right) {
  const hn::DFromV<V> d;
  const hn::RebindToSigned<decltype(d)> di;
  return hn::RebindMask(d, hn::Gt(hn::BitCast(di, left),
                                  hn::Set(di, static_cast<int32_t>(right))));
}

HWY_INLINE U32Vector Magnitude(U32Vector bits) {
  return hn::And(bits, hn::Set(U32Tag(), 0x7fffffffu));
}

// Returns bf16 bits, rounded to nearest even; NaN stays a (quiet) NaN.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> BitsOfBf16(D /*d*/,
                                                       hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  return hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
}

struct Float {
  using Bits = uint32_t;
  static HWY_INLINE F32Vector Load(const Bits* p) {
    return hn::BitCast(F32Tag(), hn::LoadU(U32Tag(), p));
  }
  static HWY_INLINE void Store(F32Vector value, Bits* p) {
    hn::StoreU(hn::BitCast(U32Tag(), value), U32Tag(), p);
  }
};

struct BFloat16 {
  using Bits = uint16_t;
  static HWY_INLINE F32Vector Load(const Bits* p) {
    const U32Tag d;
    const auto bits =
        hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(U16Tag(), p)));
    const auto is_nan = Above(Magnitude(bits), 0x7f800000u);
    const auto quiet = hn::Or(bits, hn::Set(d, 0x400000u));
    return hn::BitCast(F32Tag(), hn::IfThenElse(is_nan, quiet, bits));
  }
  static HWY_INLINE void Store(F32Vector value, Bits* p) {
    const auto bits = hn::BitCast(I32Tag(), BitsOfBf16(F32Tag(), value));
    hn::StoreU(hn::DemoteTo(U16Tag(), bits), U16Tag(), p);
  }
};

// Returns the f32 bits of f16 bits (in 32-bit lanes).
template <class V>
HWY_INLINE V WidenHalf(V half) {
  const hn::DFromV<V> d;
  const hn::RebindToFloat<decltype(d)> df;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d, 0x8000u)));
  const auto magnitude = hn::And(half, hn::Set(d, 0x7fffu));
  const auto normal =
      hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(d, (127u - 15u) << 23));
  // Computes 2^-14 + m * 2^-24, minus 2^-14; exact.
  const auto hidden = hn::Set(d, 113u << 23);
  const auto subnormal = hn::BitCast(
      d, hn::Sub(hn::BitCast(df, hn::Or(hidden, hn::ShiftLeft<13>(magnitude))),
                 hn::BitCast(df, hidden)));
  const auto special =
      hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(d, 0x7f800000u));
  const auto quiet = hn::Or(special, hn::Set(d, 0x400000u));
  auto result = hn::IfThenElse(Above(magnitude, 0x3ffu), normal, subnormal);
  result = hn::IfThenElse(Above(magnitude, 0x7bffu), special, result);
  result = hn::IfThenElse(Above(magnitude, 0x7c00u), quiet, result);
  return hn::Or(sign, result);
}

// Returns f16 elements as f32.
template <class D>
HWY_INLINE hn::Vec<D> LoadHalf(D d, const uint16_t* p) {
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, p);
  if constexpr (kHasNativeHalf) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
  } else {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, WidenHalf(hn::PromoteTo(du, bits)));
  }
}

// Returns the f16 bits (in 32-bit lanes) of f32 bits.
HWY_INLINE U32Vector RoundToHalf(U32Vector bits) {
  const U32Tag d;
  const F32Tag df;
  const auto magnitude = Magnitude(bits);
  const auto sign =
      hn::ShiftRight<16>(hn::AndNot(hn::Set(d, 0x7fffffffu), bits));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1u));
  // Adds in wrapping arithmetic: the new exponent bias, then half an ulp.
  const auto rebias = hn::Set(d, 0xfffu - ((127u - 15u) << 23));
  const auto normal =
      hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, rebias), odd));
  // At 0.5 the last place of f32 is 2^-24, as of an f16 subnormal, so the sum
  // rounds.
  const auto half = hn::Set(d, 126u << 23);
  const auto subnormal = hn::Sub(
      hn::BitCast(d,
                  hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, half))),
      half);
  const auto quiet =
      hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3ffu)),
             hn::Set(d, 0x7e00u));
  auto result =
      hn::IfThenElse(Above(magnitude, 0x387fffffu), normal, subnormal);
  result = hn::IfThenElse(Above(magnitude, 0x477fffffu), hn::Set(d, 0x7c00u),
                          result);
  result = hn::IfThenElse(Above(magnitude, 0x7f800000u), quiet, result);
  return hn::Or(sign, result);
}

struct Half {
  using Bits = uint16_t;
  static HWY_INLINE F32Vector Load(const Bits* p) {
    return LoadHalf(F32Tag(), p);
  }
  static HWY_INLINE void Store(F32Vector value, Bits* p) {
    if constexpr (kHasNativeHalf) {
      hn::StoreU(hn::BitCast(U16Tag(), hn::DemoteTo(F16Tag(), value)), U16Tag(),
                 p);
    } else {
      const auto bits = RoundToHalf(hn::BitCast(U32Tag(), value));
      hn::StoreU(hn::DemoteTo(U16Tag(), hn::BitCast(I32Tag(), bits)), U16Tag(),
                 p);
    }
  }
};

// The dtypes of images, which are read and never written.
template <class T>
struct Unsigned {
  using Bits = T;
  static HWY_INLINE F32Vector Load(const Bits* p) {
    const hn::Rebind<T, F32Tag> narrow;
    return hn::ConvertTo(F32Tag(),
                         hn::PromoteTo(I32Tag(), hn::LoadU(narrow, p)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif
