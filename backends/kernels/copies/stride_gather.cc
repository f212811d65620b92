#include "backends/kernels/copies/stride_gather.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/copies/stride_gather.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Treats a pair of elements as an integer of twice the width. On little-endian
// machines its lower half is the first element.
template <class D>
using Single = hn::Rebind<hwy::MakeNarrow<hn::TFromD<D>>, D>;

// Processes a row in vectors; the last one may overlap the one before.
template <class Move>
HWY_INLINE void CoverRow(int64_t columns, int64_t lanes, const Move& move) {
  int64_t i = 0;
  for (; i + lanes <= columns; i += lanes) move(i);
  if (i < columns) move(columns - lanes);
}

template <class D>
void GatherRows(D pairs, const SpacedRows& rows, const char* whole,
                char* dense) {
  const Single<D> singles;
  for (int64_t row : rows.dense_rows) {
    const auto* from = reinterpret_cast<const hn::TFromD<D>*>(whole);
    whole += 2 * rows.dense_pitch();
    if (row < 0) continue;
    auto* to = reinterpret_cast<hn::TFromD<Single<D>>*>(
        dense + row * rows.dense_pitch());
    CoverRow(rows.columns, hn::Lanes(pairs), [&](int64_t i) HWY_ATTR {
      hn::StoreU(hn::TruncateTo(singles, hn::LoadU(pairs, from + i)), singles,
                 to + i);
    });
  }
}

template <class D>
void SpreadRows(D pairs, const SpacedRows& rows, const char* dense,
                char* whole) {
  const Single<D> singles;
  for (int64_t row : rows.dense_rows) {
    char* const at = std::exchange(whole, whole + 2 * rows.dense_pitch());
    if (row < 0) {
      std::memset(at, 0, 2 * rows.dense_pitch());
      continue;
    }
    const auto* from = reinterpret_cast<const hn::TFromD<Single<D>>*>(
        dense + row * rows.dense_pitch());
    auto* to = reinterpret_cast<hn::TFromD<D>*>(at);
    CoverRow(rows.columns, hn::Lanes(pairs), [&](int64_t i) HWY_ATTR {
      hn::StoreU(hn::PromoteTo(pairs, hn::LoadU(singles, from + i)), pairs,
                 to + i);
    });
  }
}

// Calls `body` with the widest vector of pairs that a row fills.
template <class Body>
void WithVector(const SpacedRows& rows, const Body& body) {
  const auto choose = [&](auto pair) HWY_ATTR {
    using Pair = decltype(pair);
    if (rows.columns >= 16) return body(hn::CappedTag<Pair, 16>());
    if (rows.columns >= 8) return body(hn::CappedTag<Pair, 8>());
    if (rows.columns >= 4) return body(hn::CappedTag<Pair, 4>());
    return body(hn::CappedTag<Pair, 1>());
  };
  rows.element_bytes == 2 ? choose(uint32_t{}) : choose(uint64_t{});
}

void GatherPlane(const SpacedRows& rows, const char* whole, char* dense) {
  WithVector(rows, [&](auto pairs)
                       HWY_ATTR { GatherRows(pairs, rows, whole, dense); });
}

void SpreadPlane(const SpacedRows& rows, const char* dense, char* whole) {
  WithVector(rows, [&](auto pairs)
                       HWY_ATTR { SpreadRows(pairs, rows, dense, whole); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {
HWY_EXPORT(GatherPlane);
HWY_EXPORT(SpreadPlane);
}  // namespace

std::optional<StrideGather> StrideGather::Make(DataType dtype,
                                               const Dims& whole,
                                               const Dims& steps) {
  if (steps.empty() || steps.back() != 2) return std::nullopt;
  const size_t last = steps.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    if (whole[i + 2] % steps[i] != 0) return std::nullopt;
  }
  StrideGather every;
  every.planes_ = whole[0] * whole[1];
  every.rows_.element_bytes = ByteSizeOf(dtype);
  every.rows_.columns = whole.back() / 2;
  every.rows_.dense_rows = {0};
  for (size_t i = 0; i < last; ++i) {
    const int64_t extent = whole[i + 2], step = steps[i];
    Dims rows;
    for (int64_t outer : every.rows_.dense_rows) {
      for (int64_t x = 0; x < extent; ++x) {
        rows.push_back(outer < 0 || x % step > 0
                           ? -1
                           : outer * (extent / step) + x / step);
      }
    }
    every.rows_.dense_rows = std::move(rows);
    every.rows_.dense_row_count *= extent / step;
  }
  return every;
}

void StrideGather::Gather(const void* whole, void* dense, int64_t begin,
                          int64_t end) const {
  for (int64_t plane = begin; plane < end; ++plane) {
    HWY_DYNAMIC_DISPATCH(GatherPlane)
    (rows_, static_cast<const char*>(whole) + plane * rows_.whole_bytes(),
     static_cast<char*>(dense) + plane * rows_.dense_bytes());
  }
}

void StrideGather::Spread(const void* dense, void* whole, int64_t begin,
                          int64_t end) const {
  for (int64_t plane = begin; plane < end; ++plane) {
    HWY_DYNAMIC_DISPATCH(SpreadPlane)
    (rows_, static_cast<const char*>(dense) + plane * rows_.dense_bytes(),
     static_cast<char*>(whole) + plane * rows_.whole_bytes());
  }
}

}  // namespace convgrad
#endif  // HWY_ONCE
