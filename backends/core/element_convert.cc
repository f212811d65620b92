#include "backends/core/element_convert.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/core/element_convert.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using I32Tag = hn::RebindToSigned<F32Tag>;
using U16Tag = hn::Rebind<uint16_t, F32Tag>;
using F16Tag = hn::Rebind<hwy::float16_t, F32Tag>;
using F32Vector = hn::Vec<F32Tag>;
using U32Vector = hn::Vec<U32Tag>;

// F16C or AVX-512. Elsewhere highway 1.0.3's own conversions truncate and lose
// Inf and NaN, so that integer operations stand in for them.
constexpr bool kHasNativeHalf = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2;

// Returns a mask of the lanes with left > right; all below 2^31.
HWY_INLINE auto Above(U32Vector left, uint32_t right) {
  return hn::RebindMask(U32Tag(),
                        hn::Gt(hn::BitCast(I32Tag(), left),
                               hn::Set(I32Tag(), static_cast<int32_t>(right))));
}

HWY_INLINE U32Vector Magnitude(U32Vector bits) {
  return hn::And(bits, hn::Set(U32Tag(), 0x7fffffffu));
}

template <bool kStream, class D, class V, class T>
HWY_INLINE void Put(D d, V value, T* to) {
  if constexpr (kStream) {
    hn::Stream(value, d, to);
  } else {
    hn::StoreU(value, d, to);
  }
}

struct Float {
  using Bits = uint32_t;
  static HWY_INLINE F32Vector Load(const Bits* p) {
    return hn::BitCast(F32Tag(), hn::LoadU(U32Tag(), p));
  }
  template <bool kStream>
  static HWY_INLINE void Store(F32Vector value, Bits* p) {
    Put<kStream>(U32Tag(), hn::BitCast(U32Tag(), value), p);
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
  template <bool kStream>
  static HWY_INLINE void Store(F32Vector value, Bits* p) {
    const U32Tag d;
    const auto bits = hn::BitCast(d, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(d, 0x7fffu)), odd);
    const auto quiet = hn::Or(bits, hn::Set(d, 0x400000u));
    const auto is_nan = Above(Magnitude(bits), 0x7f800000u);
    const auto high =
        hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
    Put<kStream>(U16Tag(), hn::DemoteTo(U16Tag(), hn::BitCast(I32Tag(), high)),
                 p);
  }
};

// Returns the f32 bits of f16 bits (in 32-bit lanes).
HWY_INLINE U32Vector WidenHalf(U32Vector half) {
  const U32Tag d;
  const F32Tag df;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d, 0x8000u)));
  const auto magnitude = hn::And(half, hn::Set(d, 0x7fffu));
  const auto normal =
      hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(d, (127u - 15u) << 23));
  // 2^-14 + m * 2^-24, less 2^-14; exact.
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

// Returns the f16 bits (in 32-bit lanes) of f32 bits.
HWY_INLINE U32Vector RoundToHalf(U32Vector bits) {
  const U32Tag d;
  const F32Tag df;
  const auto magnitude = Magnitude(bits);
  const auto sign =
      hn::ShiftRight<16>(hn::AndNot(hn::Set(d, 0x7fffffffu), bits));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1u));
  // Adds in wrapping arithmetic: new exponent bias, then half an ulp.
  const auto rebias = hn::Set(d, 0xfffu - ((127u - 15u) << 23));
  const auto normal =
      hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, rebias), odd));
  // At 0.5 an f32's last place is 2^-24, an f16 subnormal's: the sum rounds.
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
    const auto bits = hn::LoadU(U16Tag(), p);
    if constexpr (kHasNativeHalf) {
      return hn::PromoteTo(F32Tag(), hn::BitCast(F16Tag(), bits));
    } else {
      return hn::BitCast(F32Tag(), WidenHalf(hn::PromoteTo(U32Tag(), bits)));
    }
  }
  template <bool kStream>
  static HWY_INLINE void Store(F32Vector value, Bits* p) {
    if constexpr (kHasNativeHalf) {
      Put<kStream>(U16Tag(),
                   hn::BitCast(U16Tag(), hn::DemoteTo(F16Tag(), value)), p);
    } else {
      const auto bits = RoundToHalf(hn::BitCast(U32Tag(), value));
      Put<kStream>(U16Tag(),
                   hn::DemoteTo(U16Tag(), hn::BitCast(I32Tag(), bits)), p);
    }
  }
};

// Converts less than a vector.
template <class Source, class Destination>
void ConvertFew(const typename Source::Bits* source,
                typename Destination::Bits* destination, size_t count) {
  HWY_ALIGN typename Source::Bits in[hn::MaxLanes(F32Tag())] = {};
  HWY_ALIGN typename Destination::Bits out[hn::MaxLanes(F32Tag())];
  std::memcpy(in, source, count * sizeof(*in));
  Destination::template Store<false>(Source::Load(in), out);
  std::memcpy(destination, out, count * sizeof(*out));
}

template <class Source, class Destination, bool kStream>
void ConvertAll(const void* from, void* to, size_t count) {
  const auto* source = static_cast<const typename Source::Bits*>(from);
  auto* destination = static_cast<typename Destination::Bits*>(to);
  const size_t lanes = hn::Lanes(F32Tag());
  size_t i = 0;
  if constexpr (kStream) {
    constexpr size_t kSize = sizeof(*destination);
    const size_t beyond = reinterpret_cast<uintptr_t>(to) % (lanes * kSize);
    if (beyond % kSize != 0) {
      return ConvertAll<Source, Destination, false>(from, to, count);
    }
    i = beyond == 0 ? 0 : std::min(count, lanes - beyond / kSize);
    ConvertFew<Source, Destination>(source, destination, i);
  }
  for (; i + lanes <= count; i += lanes) {
    Destination::template Store<kStream>(Source::Load(source + i),
                                         destination + i);
  }
  if (i < count) {
    ConvertFew<Source, Destination>(source + i, destination + i, count - i);
  }
}

template <bool kStream>
void Convert(DataType from, const void* source, DataType to, void* destination,
             size_t count) {
  const auto load = [&](auto destination_type) {
    using To = decltype(destination_type);
    switch (from) {
      case DataType::kF32:
        return ConvertAll<Float, To, kStream>(source, destination, count);
      case DataType::kBF16:
        return ConvertAll<BFloat16, To, kStream>(source, destination, count);
      case DataType::kF16:
        return ConvertAll<Half, To, kStream>(source, destination, count);
    }
  };
  switch (to) {
    case DataType::kF32:
      return load(Float());
    case DataType::kBF16:
      return load(BFloat16());
    case DataType::kF16:
      return load(Half());
  }
}

void ConvertCached(DataType from, const void* source, DataType to,
                   void* destination, size_t count) {
  Convert<false>(from, source, to, destination, count);
}

void ConvertStreaming(DataType from, const void* source, DataType to,
                      void* destination, size_t count) {
  Convert<true>(from, source, to, destination, count);
}

// Copies bytes with stores that bypass the caches.
void CopyStreaming(const uint8_t* source, uint8_t* destination, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  const size_t beyond = reinterpret_cast<uintptr_t>(destination) % lanes;
  size_t i = beyond == 0 ? 0 : std::min(bytes, lanes - beyond);
  std::memcpy(destination, source, i);
  for (; i + lanes <= bytes; i += lanes) {
    hn::Stream(hn::LoadU(d, source + i), d, destination + i);
  }
  if (i < bytes) std::memcpy(destination + i, source + i, bytes - i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(ConvertCached);
HWY_EXPORT(ConvertStreaming);
HWY_EXPORT(CopyStreaming);

}  // namespace

void ConvertRun(DataType from, const void* source, DataType to,
                void* destination, int64_t count) {
  if (count <= 0) return;
  const auto elements = static_cast<size_t>(count);
  if (from == to) {
    std::memcpy(destination, source, elements * ByteSizeOf(to));
    return;
  }
  HWY_DYNAMIC_DISPATCH(ConvertCached)
  (from, source, to, destination, elements);
}

void StreamRun(DataType from, const void* source, DataType to,
               void* destination, int64_t count) {
  if (count <= 0) return;
  const auto elements = static_cast<size_t>(count);
  if (from == to) {
    HWY_DYNAMIC_DISPATCH(CopyStreaming)
    (static_cast<const uint8_t*>(source), static_cast<uint8_t*>(destination),
     elements * ByteSizeOf(to));
    return;
  }
  HWY_DYNAMIC_DISPATCH(ConvertStreaming)
  (from, source, to, destination, elements);
}

void FinishStreaming() { hwy::FlushStream(); }

}  // namespace convgrad
#endif  // HWY_ONCE
