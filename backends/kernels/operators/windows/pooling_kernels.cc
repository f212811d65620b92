#include <limits>

#include "backends/kernels/operators/channel_rows.h"
#include "backends/kernels/operators/windows/pooling.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "backends/kernels/operators/windows/pooling_kernels.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/operators/channel_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

using Entry = PositionLists::Entry;

// The lists of one result position, and the result's index in its plane.
struct Window {
  absl::Span<const Entry> axes[3];
  int64_t extent[2];  // of the operand's last two axes
  int64_t result;
};

// Calls body(position in the operand's plane, weight).
template <class Body>
HWY_INLINE void ForEachTap(const Window& window, const Body& body) {
  for (const Entry& d : window.axes[0]) {
    for (const Entry& h : window.axes[1]) {
      const int64_t row =
          (d.position * window.extent[0] + h.position) * window.extent[1];
      const float weight = d.weight * h.weight;
      for (const Entry& w : window.axes[2]) {
        body(row + w.position, weight * w.weight);
      }
    }
  }
}

// Taps that are added in f32 before their sum is added in f64.
constexpr int64_t kShortSum = 128;

// Returns the sum over the window's taps. add(sum, position, weight) returns
// `sum` and the tap's term.
template <class D, class Add>
HWY_INLINE hn::Vec<D> SumOfTaps(D d, const Window& window, const Add& add) {
  auto sum = hn::Zero(d);
  const auto& [depths, rows, columns] = window.axes;
  if (depths.size() * rows.size() * columns.size() <= kShortSum) {
    ForEachTap(window, [&](int64_t position, float weight)
                           HWY_ATTR { sum = add(sum, position, weight); });
    return sum;
  }
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  double totals[hn::MaxLanes(D())] = {};
  const auto add_to_totals = [&]() HWY_ATTR {
    hn::Store(sum, d, lanes);
    sum = hn::Zero(d);
    for (size_t i = 0; i < hn::Lanes(d); ++i) totals[i] += lanes[i];
  };
  int64_t taps = 0;
  ForEachTap(window, [&](int64_t position, float weight) HWY_ATTR {
    sum = add(sum, position, weight);
    if (++taps % kShortSum == 0) add_to_totals();
  });
  add_to_totals();
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    lanes[i] = static_cast<float>(totals[i]);
  }
  return hn::Load(d, lanes);
}

// Calls body(window) for each result of a part, which is a row of one plane.
template <class Body>
HWY_INLINE void ForEachWindow(const PoolLists& lists, int64_t row,
                              const Body& body) {
  const auto& [d, h, w] = lists.axes;
  Window window{{d.Of(row / h.count()), h.Of(row % h.count()), {}},
                {h.extent(), w.extent()},
                row * w.count()};
  for (int64_t i = 0; i < w.count(); ++i, ++window.result) {
    window.axes[2] = w.Of(i);
    body(window);
  }
}

// A row of results in one plane.
struct PlaneRow {
  const PoolLists* lists;
  int64_t row;
  size_t block;
};

template <bool kStream, class T>
void WeightedRow(const PlaneRow& plane, const T* x, T* y) {
  ForEachWindow(*plane.lists, plane.row, [&](const Window& window) HWY_ATTR {
    T* result = y + window.result * plane.block;
    ForVectors(plane.block, [&](auto d, size_t c) HWY_ATTR {
      const auto sum = SumOfTaps(
          d, window, [&](auto before, int64_t position, float weight) HWY_ATTR {
            const auto value = LoadElements(d, x + position * plane.block + c);
            return hn::MulAdd(value, hn::Set(d, weight), before);
          });
      StoreElements<kStream>(d, sum, result + c);
    });
  });
}

int32_t FirstPosition(const Window& window) {
  const auto& [d, h, w] = window.axes;
  const int64_t row = d[0].position * window.extent[0] + h[0].position;
  return static_cast<int32_t>(row * window.extent[1] + w[0].position);
}

template <bool kStream, class T>
void MaxRow(const PlaneRow& plane, const T* x, T* y, int32_t* chosen) {
  ForEachWindow(*plane.lists, plane.row, [&](const Window& window) HWY_ATTR {
    const int64_t at = window.result * plane.block;
    const int32_t first = FirstPosition(window);
    ForVectors(plane.block, [&](auto d, size_t c) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> di;
      auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
      auto index = hn::Set(di, first);
      ForEachTap(window, [&](int64_t position, float /*weight*/) HWY_ATTR {
        const auto value = LoadElements(d, x + position * plane.block + c);
        const auto take = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
        best = hn::IfThenElse(take, value, best);
        index =
            hn::IfThenElse(hn::RebindMask(di, take),
                           hn::Set(di, static_cast<int32_t>(position)), index);
      });
      StoreElements<kStream>(d, best, y + at + c);
      if (chosen != nullptr) hn::StoreU(index, di, chosen + at + c);
    });
  });
}

template <bool kStream, class T>
void MaxGradientRow(const PlaneRow& plane, const int32_t* chosen, const T* dy,
                    T* dx) {
  ForEachWindow(*plane.lists, plane.row, [&](const Window& window) HWY_ATTR {
    T* result = dx + window.result * plane.block;
    ForVectors(plane.block, [&](auto d, size_t c) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> di;
      const auto self = hn::Set(di, static_cast<int32_t>(window.result));
      const auto sum = SumOfTaps(
          d, window,
          [&](auto before, int64_t position, float /*weight*/) HWY_ATTR {
            const int64_t at = position * plane.block + c;
            const auto mine = hn::Eq(hn::LoadU(di, chosen + at), self);
            const auto value = LoadElements(d, dy + at);
            return hn::Add(before,
                           hn::IfThenElseZero(hn::RebindMask(d, mine), value));
          });
      StoreElements<kStream>(d, sum, result + c);
    });
  });
}

// The plane and the row of a part.
struct Part {
  Part(const ChannelBlocks& blocks, const PoolLists& lists, int64_t part)
      : rows(lists.axes[0].count() * lists.axes[1].count()),
        operand(part / rows * lists.in() * blocks.block),
        result(part / rows * lists.out() * blocks.block),
        row{&lists, part % rows, static_cast<size_t>(blocks.block)} {}

  int64_t rows;             // of a plane
  int64_t operand, result;  // of the plane; units: elements
  PlaneRow row;
};

// Calls body(part, stream, results) for the part with this index: its first
// results in `y`, and whether they bypass the caches.
template <class Body>
HWY_INLINE void ForPart(const Pooling& pooling, void* y, int64_t index,
                        const Body& body) {
  const Part part(pooling.blocks, *pooling.lists, index);
  ChannelBlocks results = pooling.blocks;
  results.spatial = pooling.lists->out();
  WithElements(results.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    T* to = static_cast<T*>(y) + part.result;
    Streamed(results, to,
             [&](auto stream) HWY_ATTR { body(part, stream, to); });
  });
}

void Weighted(const Pooling& pooling, const void* x, void* y, int64_t index) {
  ForPart(pooling, y, index,
          [&]<class T>(const Part& part, auto stream, T* to) HWY_ATTR {
            WeightedRow<stream()>(part.row,
                                  static_cast<const T*>(x) + part.operand, to);
          });
}

void Max(const Pooling& pooling, const void* x, void* y, int32_t* chosen,
         int64_t index) {
  ForPart(pooling, y, index,
          [&]<class T>(const Part& part, auto stream, T* to) HWY_ATTR {
            MaxRow<stream()>(part.row, static_cast<const T*>(x) + part.operand,
                             to, Moved<int32_t>(chosen, part.result));
          });
}

void MaxGradient(const ChannelBlocks& blocks, const PoolMaxBackward& tensors,
                 int64_t index) {
  ForPart({blocks, tensors.transposed}, tensors.dx, index,
          [&]<class T>(const Part& part, auto stream, T* to) HWY_ATTR {
            MaxGradientRow<stream()>(
                part.row, tensors.chosen + part.operand,
                static_cast<const T*>(tensors.dy) + part.operand, to);
          });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(Weighted);
HWY_EXPORT(Max);
HWY_EXPORT(MaxGradient);

// A part is a row of results.
int64_t PartCount(const ChannelBlocks& blocks, const PoolLists& lists) {
  return blocks.batch * blocks.block_count() * lists.axes[0].count() *
         lists.axes[1].count();
}

}  // namespace

void PoolWeighted(const Pooling& pooling, const void* x, void* y,
                  RunParts run) {
  run(PartCount(pooling.blocks, *pooling.lists), [&](int64_t part) {
    HWY_DYNAMIC_DISPATCH(Weighted)(pooling, x, y, part);
  });
}

void PoolMax(const Pooling& pooling, const void* x, void* y, int32_t* chosen,
             RunParts run) {
  run(PartCount(pooling.blocks, *pooling.lists), [&](int64_t part) {
    HWY_DYNAMIC_DISPATCH(Max)(pooling, x, y, chosen, part);
  });
}

void PoolMaxGradient(const ChannelBlocks& blocks,
                     const PoolMaxBackward& tensors, RunParts run) {
  run(PartCount(blocks, *tensors.transposed), [&](int64_t part) {
    HWY_DYNAMIC_DISPATCH(MaxGradient)(blocks, tensors, part);
  });
}

}  // namespace convgrad
#endif  // HWY_ONCE
