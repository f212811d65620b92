#include "backends/kernels/copies/element_convert.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/copies/element_convert.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/copies/element_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

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
      case DataType::kU16:
        return ConvertAll<Unsigned16, To, kStream>(source, destination, count);
      // Reorders don't convert bytes or indices.
      case DataType::kU8:
      case DataType::kI64:
        return;
    }
  };
  switch (to) {
    case DataType::kF32:
      return load(Float());
    case DataType::kBF16:
      return load(BFloat16());
    case DataType::kF16:
      return load(Half());
    // No conversion writes integers.
    case DataType::kU8:
    case DataType::kI64:
    case DataType::kU16:
      return;
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
