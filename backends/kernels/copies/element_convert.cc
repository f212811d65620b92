#include "backends/kernels/copies/element_convert.h"

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

template <class Source, class Destination>
void ConvertAll(const void* from, void* to, size_t count) {
  const auto* source = static_cast<const typename Source::Bits*>(from);
  auto* destination = static_cast<typename Destination::Bits*>(to);
  const size_t lanes = hn::Lanes(F32Tag());
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Destination::Store(Source::Load(source + i), destination + i);
  }
  if (i == count) return;
  HWY_ALIGN typename Source::Bits in[hn::MaxLanes(F32Tag())] = {};
  HWY_ALIGN typename Destination::Bits out[hn::MaxLanes(F32Tag())];
  std::memcpy(in, source + i, (count - i) * sizeof(*in));
  Destination::Store(Source::Load(in), out);
  std::memcpy(destination + i, out, (count - i) * sizeof(*out));
}

void Convert(DataType from, const void* source, DataType to, void* destination,
             size_t count) {
  const auto load = [&](auto destination_type) {
    using To = decltype(destination_type);
    switch (from) {
      case DataType::kF32:
        return ConvertAll<Float, To>(source, destination, count);
      case DataType::kBF16:
        return ConvertAll<BFloat16, To>(source, destination, count);
      case DataType::kF16:
        return ConvertAll<Half, To>(source, destination, count);
      case DataType::kU16:
        return ConvertAll<Unsigned<uint16_t>, To>(source, destination, count);
      case DataType::kU8:
        return ConvertAll<Unsigned<uint8_t>, To>(source, destination, count);
      // Reorders don't convert indices.
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(Convert);

}  // namespace

void ConvertRun(DataType from, const void* source, DataType to,
                void* destination, int64_t count) {
  if (count <= 0) return;
  const auto elements = static_cast<size_t>(count);
  if (from == to) {
    std::memcpy(destination, source, elements * ByteSizeOf(to));
    return;
  }
  HWY_DYNAMIC_DISPATCH(Convert)(from, source, to, destination, elements);
}

}  // namespace convgrad
#endif  // HWY_ONCE
