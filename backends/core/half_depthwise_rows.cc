#include "backends/core/half_depthwise_rows.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/core/half_depthwise_rows.cc"
#include <hwy/foreach_target.h>

#include "backends/core/element_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using half_depthwise::ChannelRange;
using half_depthwise::Gather;
using half_depthwise::RowPair;
using half_depthwise::Tap;

// Less than a vector: the last channels.
template <class Element>
HWY_INLINE F32Vector LoadFew(const typename Element::Bits* from, size_t count) {
  HWY_ALIGN typename Element::Bits lanes[hn::MaxLanes(F32Tag())] = {};
  std::memcpy(lanes, from, count * sizeof(*lanes));
  return Element::Load(lanes);
}
template <class Element>
HWY_INLINE void StoreFew(F32Vector value, typename Element::Bits* to,
                         size_t count) {
  HWY_ALIGN typename Element::Bits lanes[hn::MaxLanes(F32Tag())];
  Element::template Store<false>(value, lanes);
  std::memcpy(to, lanes, count * sizeof(*lanes));
}

HWY_INLINE const uint32_t* Bits(const float* p) {
  return reinterpret_cast<const uint32_t*>(p);
}
HWY_INLINE uint32_t* Bits(float* p) { return reinterpret_cast<uint32_t*>(p); }

// What one element of a result is the sum of.
struct Product {
  const uint16_t* element;
  const float* weight;
};

// One vector of channels of an element of a result.
HWY_INLINE F32Vector SumVector(const Product* products, size_t count,
                               F32Vector sum, int64_t c) {
  for (size_t i = 0; i < count; ++i) {
    sum = hn::MulAdd(Half::Load(products[i].element + c),
                     hn::LoadU(F32Tag(), products[i].weight + c), sum);
  }
  return sum;
}

template <class Result>
HWY_INLINE void SumProducts(const Product* products, size_t count,
                            const float* bias, const ChannelRange& channels,
                            typename Result::Bits* result) {
  const F32Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto start = [&](int64_t c) {
    return bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + c);
  };
  int64_t c = channels.begin;
  // Two sums at a time, so that additions overlap.
  for (; c + 2 * lanes <= channels.end; c += 2 * lanes) {
    auto first = start(c), second = start(c + lanes);
    for (size_t i = 0; i < count; ++i) {
      const uint16_t* element = products[i].element + c;
      const float* weight = products[i].weight + c;
      first = hn::MulAdd(Half::Load(element), hn::LoadU(d, weight), first);
      second = hn::MulAdd(Half::Load(element + lanes),
                          hn::LoadU(d, weight + lanes), second);
    }
    Result::template Store<false>(first, result + c);
    Result::template Store<false>(second, result + c + lanes);
  }
  for (; c + lanes <= channels.end; c += lanes) {
    Result::template Store<false>(SumVector(products, count, start(c), c),
                                  result + c);
  }
  if (c == channels.end) return;
  const size_t few = channels.end - c;
  auto sum =
      bias == nullptr ? hn::Zero(d) : LoadFew<Float>(Bits(bias + c), few);
  for (size_t i = 0; i < count; ++i) {
    sum = hn::MulAdd(LoadFew<Half>(products[i].element + c, few),
                     LoadFew<Float>(Bits(products[i].weight + c), few), sum);
  }
  StoreFew<Result>(sum, result + c, few);
}

template <class Result>
void GatherInto(const Gather& gather, int64_t row, const float* weight,
                const float* bias, const ChannelRange& channels, void* result) {
  Product products[half_depthwise::kMaxTaps];
  auto* element = static_cast<typename Result::Bits*>(result);
  for (int64_t i = 0; i < gather.result_width; ++i) {
    size_t count = 0;
    for (const Tap* y = gather.y->begin(row); y != gather.y->end(row); ++y) {
      for (const Tap* x = gather.x->begin(i); x != gather.x->end(i); ++x) {
        products[count++] = {
            gather.source +
                (y->at * gather.source_width + x->at) * channels.all,
            weight + (y->tap * gather.kernel_width + x->tap) * channels.all};
      }
    }
    SumProducts<Result>(products, count, bias, channels, element);
    element += channels.all;
  }
}

void GatherHalf(const Gather& gather, int64_t row, const float* weight,
                const float* bias, const ChannelRange& channels, void* result) {
  GatherInto<Half>(gather, row, weight, bias, channels, result);
}
void GatherFloat(const Gather& gather, int64_t row, const float* weight,
                 const float* bias, const ChannelRange& channels,
                 void* result) {
  GatherInto<Float>(gather, row, weight, bias, channels, result);
}

// Adds what the inner elements contribute to taps [tap, tap + kTaps), in one
// vector of channels from `c` on.
template <int kTaps>
HWY_INLINE void AddInner(const RowPair& row, int64_t tap, int64_t all,
                         int64_t c, float* sums) {
  const F32Tag d;
  sums += tap * all + c;
  F32Vector sum[kTaps];
  for (int k = 0; k < kTaps; ++k) sum[k] = hn::LoadU(d, sums + k * all);
  for (int64_t i = row.inner_begin; i < row.inner_end; ++i) {
    const auto grad = Half::Load(row.grad + i * all + c);
    const Tap* at = row.x->begin(i) + tap;
    for (int k = 0; k < kTaps; ++k) {
      sum[k] =
          hn::MulAdd(Half::Load(row.data + at[k].at * all + c), grad, sum[k]);
    }
  }
  for (int k = 0; k < kTaps; ++k) hn::StoreU(sum[k], d, sums + k * all);
}

// Adds what elements [begin, end) contribute, whichever taps they meet.
template <bool kFew>
HWY_INLINE void AddOuter(const RowPair& row, int64_t begin, int64_t end,
                         int64_t all, int64_t c, size_t few, float* sums) {
  const auto load = [&](const uint16_t* from) {
    return kFew ? LoadFew<Half>(from, few) : Half::Load(from);
  };
  for (int64_t i = begin; i < end; ++i) {
    const auto grad = load(row.grad + i * all + c);
    for (const Tap* tap = row.x->begin(i); tap != row.x->end(i); ++tap) {
      uint32_t* sum = Bits(sums + tap->tap * all + c);
      const auto before = kFew ? LoadFew<Float>(sum, few) : Float::Load(sum);
      const auto after =
          hn::MulAdd(load(row.data + tap->at * all + c), grad, before);
      if (kFew) {
        StoreFew<Float>(after, sum, few);
      } else {
        Float::Store<false>(after, sum);
      }
    }
  }
}

void AddRowOf(const RowPair& row, const ChannelRange& channels, float* sums) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32Tag()));
  const int64_t all = channels.all;
  int64_t c = channels.begin;
  for (; c + lanes <= channels.end; c += lanes) {
    AddOuter<false>(row, 0, row.inner_begin, all, c, lanes, sums);
    int64_t tap = 0;
    for (; tap + 3 <= row.kernel_width; tap += 3) {
      AddInner<3>(row, tap, all, c, sums);
    }
    for (; tap < row.kernel_width; ++tap) AddInner<1>(row, tap, all, c, sums);
    AddOuter<false>(row, row.inner_end, row.width, all, c, lanes, sums);
  }
  if (c < channels.end) {
    AddOuter<true>(row, 0, row.width, all, c, channels.end - c, sums);
  }
}

void AddElementsOf(const uint16_t* row, int64_t width,
                   const ChannelRange& channels, float* sums) {
  const F32Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = channels.begin;
  for (; c + lanes <= channels.end; c += lanes) {
    auto sum = hn::LoadU(d, sums + c);
    for (int64_t i = 0; i < width; ++i) {
      sum = hn::Add(sum, Half::Load(row + i * channels.all + c));
    }
    hn::StoreU(sum, d, sums + c);
  }
  if (c == channels.end) return;
  const size_t few = channels.end - c;
  auto sum = LoadFew<Float>(Bits(sums + c), few);
  for (int64_t i = 0; i < width; ++i) {
    sum = hn::Add(sum, LoadFew<Half>(row + i * channels.all + c, few));
  }
  StoreFew<Float>(sum, Bits(sums + c), few);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(GatherHalf);
HWY_EXPORT(GatherFloat);
HWY_EXPORT(AddRowOf);
HWY_EXPORT(AddElementsOf);

}  // namespace

namespace half_depthwise {

void GatherRow(const Gather& gather, int64_t row, const float* weight,
               const float* bias, DataType dtype, const ChannelRange& channels,
               void* result) {
  if (dtype == DataType::kF16) {
    HWY_DYNAMIC_DISPATCH(GatherHalf)
    (gather, row, weight, bias, channels, result);
  } else {
    HWY_DYNAMIC_DISPATCH(GatherFloat)
    (gather, row, weight, bias, channels, result);
  }
}

void AddRow(const RowPair& row, const ChannelRange& channels, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddRowOf)(row, channels, sums);
}

void AddElements(const uint16_t* row, int64_t width,
                 const ChannelRange& channels, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddElementsOf)(row, width, channels, sums);
}

}  // namespace half_depthwise
}  // namespace convgrad
#endif  // HWY_ONCE
