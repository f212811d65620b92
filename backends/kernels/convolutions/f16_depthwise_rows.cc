#include "backends/kernels/convolutions/f16_depthwise_rows.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/convolutions/f16_depthwise_rows.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/copies/element_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using f16_depthwise::BlockGrid;
using f16_depthwise::BlockTap;
using f16_depthwise::DataBlock;
using f16_depthwise::kBlock;
using f16_depthwise::ResultBlock;

// Products that are added in f32 before their sum is added in f64.
constexpr int64_t kShortSum = 128;

// Arguments for some of the taps. The first taps start the results, the last
// ones finish them.
struct Share {
  const BlockGrid& grid;
  const float* start;         // null: results begin with `partial`
  const ResultBlock* result;  // null: results end in `partial`
  const DataBlock& data;
  float* partial;
};

HWY_INLINE void StoreResult(F32Vector value, const ResultBlock& result,
                            int64_t at) {
  if (result.dtype == DataType::kF16) {
    Half::Store(value, static_cast<uint16_t*>(result.first) + at);
  } else {
    Float::Store(value, static_cast<uint32_t*>(result.first) + at);
  }
}

HWY_INLINE void AddTo(double* sums, F32Vector more) {
  const F32Tag d;
  HWY_ALIGN float lanes[kBlock];
  hn::Store(more, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) sums[i] += lanes[i];
}

// Runs kTaps taps for one vector of the channels, from `lane` on.
template <int kTaps, bool kResult, bool kSums>
HWY_INLINE void RunLanes(const Share& share, const BlockTap* taps,
                         int64_t lane) {
  const F32Tag d;
  const BlockGrid& grid = share.grid;
  F32Vector weight[kTaps], sum[kTaps];
  const float* source[kTaps];
  for (int k = 0; k < kTaps; ++k) {
    source[k] = taps[k].source + lane;
    if (kResult) weight[k] = hn::LoadU(d, taps[k].weight + lane);
    sum[k] = hn::Zero(d);
  }
  const auto add_sums = [&]() HWY_ATTR {
    for (int k = 0; k < kTaps; ++k) {
      AddTo(taps[k].sums + lane, sum[k]);
      sum[k] = hn::Zero(d);
    }
  };
  int64_t room = kShortSum;
  const auto start =
      share.start == nullptr ? hn::Zero(d) : hn::LoadU(d, share.start + lane);
  float* partial = share.partial + lane;
  for (int64_t y = 0; y < grid.rows; ++y) {
    int64_t at = y * grid.row_step;
    int64_t from = y * grid.source_row_step * kBlock;
    for (int64_t x = 0; x < grid.columns; ++x, partial += kBlock) {
      if (kSums && room-- == 0) {
        add_sums();
        room = kShortSum - 1;
      }
      auto total = start, factor = start;
      if (kResult && share.start == nullptr) total = hn::LoadU(d, partial);
      if (kSums)
        factor = Half::Load(share.data.first + at * share.data.pitch + lane);
      for (int k = 0; k < kTaps; ++k) {
        const auto value = hn::LoadU(d, source[k] + from);
        if (kResult) total = hn::MulAdd(value, weight[k], total);
        if (kSums) sum[k] = hn::MulAdd(value, factor, sum[k]);
      }
      if (kResult && share.result == nullptr) {
        hn::StoreU(total, d, partial);
      } else if (kResult) {
        StoreResult(total, *share.result, at * share.result->pitch + lane);
      }
      at += grid.column_step;
      from += grid.source_column_step * kBlock;
    }
  }
  if (kSums) add_sums();
}

template <int kTaps>
HWY_INLINE void RunShare(const Share& share, bool has_result,
                         const BlockTap* taps) {
  for (int64_t lane = 0; lane < kBlock; lane += hn::Lanes(F32Tag())) {
    if (share.data.first == nullptr) {
      RunLanes<kTaps, true, false>(share, taps, lane);
    } else if (!has_result) {
      RunLanes<kTaps, false, true>(share, taps, lane);
    } else {
      RunLanes<kTaps, true, true>(share, taps, lane);
    }
  }
}

void RunTapsOf(const BlockGrid& grid, absl::Span<const BlockTap> taps,
               const float* start, const ResultBlock& result,
               const DataBlock& data, float* partial) {
  const bool has_result = result.first != nullptr;
  const auto run = [&](auto count) HWY_ATTR {
    while (taps.size() >= count()) {
      const bool is_last = taps.size() == count();
      RunShare<count()>(
          {grid, start, is_last ? &result : nullptr, data, partial}, has_result,
          taps.data());
      taps.remove_prefix(count());
      start = nullptr;
    }
  };
  // The largest numbers of taps whose weights and sums fit the registers.
  if (HWY_TARGET <= HWY_AVX3) run(std::integral_constant<size_t, 9>());
  if (HWY_TARGET <= HWY_AVX3) run(std::integral_constant<size_t, 6>());
  run(std::integral_constant<size_t, 4>());
  run(std::integral_constant<size_t, 2>());
  run(std::integral_constant<size_t, 1>());
}

void WidenAll(const DataBlock& elements, int64_t count, float* to) {
  const F32Tag d;
  const uint16_t* from = elements.first;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t lane = 0; lane < kBlock; lane += hn::Lanes(d)) {
      hn::StoreU(Half::Load(from + lane), d, to + lane);
    }
    from += elements.pitch;
    to += kBlock;
  }
}

// Several independent sums, so that additions overlap.
constexpr int kSums = 4;

// Requires: count <= kSums * kShortSum.
void AddFewElements(const float* elements, int64_t count, double* sums) {
  const F32Tag d;
  for (int64_t lane = 0; lane < kBlock; lane += hn::Lanes(d)) {
    F32Vector sum[kSums];
    for (auto& each : sum) each = hn::Zero(d);
    const float* at = elements + lane;
    int64_t i = 0;
    for (; i + kSums <= count; i += kSums) {
      for (auto& each : sum) {
        each = hn::Add(each, hn::LoadU(d, at));
        at += kBlock;
      }
    }
    for (; i < count; ++i, at += kBlock) {
      sum[0] = hn::Add(sum[0], hn::LoadU(d, at));
    }
    const auto all = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
    AddTo(sums + lane, all);
  }
}

void AddElementsOf(const float* elements, int64_t count, double* sums) {
  constexpr int64_t kMost = kSums * kShortSum;
  for (int64_t i = 0; i < count; i += kMost) {
    AddFewElements(elements + i * kBlock, std::min(count - i, kMost), sums);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(RunTapsOf);
HWY_EXPORT(WidenAll);
HWY_EXPORT(AddElementsOf);

}  // namespace

namespace f16_depthwise {

void RunTaps(const BlockGrid& grid, absl::Span<const BlockTap> taps,
             const float* start, const ResultBlock& result,
             const DataBlock& data, float* partial) {
  HWY_DYNAMIC_DISPATCH(RunTapsOf)(grid, taps, start, result, data, partial);
}

void Widen(const DataBlock& elements, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(WidenAll)(elements, count, to);
}

void AddElements(const float* elements, int64_t count, double* sums) {
  HWY_DYNAMIC_DISPATCH(AddElementsOf)(elements, count, sums);
}

}  // namespace f16_depthwise
}  // namespace convgrad
#endif  // HWY_ONCE
