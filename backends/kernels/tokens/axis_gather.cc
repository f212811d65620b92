#include "backends/kernels/tokens/axis_gather.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/types/span.h"
#include "backends/core/checked_math.h"
#include "backends/kernels/operators/elements.h"

namespace convgrad {
namespace {

constexpr int64_t kPartBytes = 1 << 16;

// The axes of a gather in three groups: rows, i.e. the leading axes; the inner
// axis, i.e. the last one with a table; and units, which are contiguous on both
// sides.
struct GatherShape {
  explicit GatherShape(const AxisGather& gather) {
    size_t last = gather.axes.size();
    while (last > 1 && gather.axes[last - 1].sources == nullptr) {
      unit *= gather.axes[--last].in;
    }
    rows = absl::MakeConstSpan(gather.axes).first(last - 1);
    inner = gather.axes[last - 1];
    size = ByteSizeOf(gather.dtype);
  }

  int64_t unit_bytes() const { return unit * size; }
  // Calls body(row, begin, end) with ranges of units that cover `count` rows of
  // `extent` units.
  template <class Body>
  void ForUnits(int64_t count, int64_t extent, RunParts run,
                const Body& body) const {
    const int64_t units = count * extent;
    const int64_t step = std::max<int64_t>(kPartBytes / unit_bytes(), 1);
    run(CeilDiv(units, step), [&](int64_t part) {
      for (int64_t i = part * step; i < std::min(units, (part + 1) * step);) {
        const int64_t row = i / extent, first = i % extent;
        const int64_t end =
            std::min(extent, first + std::min(units, (part + 1) * step) - i);
        body(row, first, end);
        i += end - first;
      }
    });
  }

  absl::Span<const GatherAxis> rows;
  GatherAxis inner;
  int64_t unit = 1;  // elements
  int64_t size;      // bytes of an element
};

int64_t CountOfRows(absl::Span<const GatherAxis> axes,
                    int64_t GatherAxis::*extent) {
  int64_t count = 1;
  for (const GatherAxis& axis : axes) count *= axis.*extent;
  return count;
}

// Returns the operand's row of a row of the result, -1 if it is filled.
int64_t SourceRow(absl::Span<const GatherAxis> axes, int64_t row) {
  int64_t source = 0, stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t index = row % axes[i].out;
    const int64_t at =
        axes[i].sources == nullptr ? index : axes[i].sources[index];
    if (at < 0) return -1;
    source += at * stride;
    stride *= axes[i].in;
    row /= axes[i].out;
  }
  return source;
}

void Fill(DataType dtype, float fill, int64_t count, std::byte* y) {
  for (int64_t i = 0; i < count; ++i) StoreElement(dtype, fill, y, i);
}

// Returns the results of one index along an axis.
absl::Span<const int64_t> ResultsOf(const GatherAxis& axis, int64_t index) {
  const int64_t begin = axis.results[index], end = axis.results[index + 1];
  return {axis.results + axis.in + 1 + begin, static_cast<size_t>(end - begin)};
}

// Calls body(row) with each row of the result that is a copy of a row of the
// operand, in ascending order. `first` is the index along the axes before
// these.
template <class Body>
void ForResultRows(absl::Span<const GatherAxis> axes, int64_t row,
                   int64_t first, const Body& body) {
  if (axes.empty()) return body(first);
  const GatherAxis& axis = axes[0];
  const absl::Span<const GatherAxis> rest = axes.subspan(1);
  const int64_t stride = CountOfRows(rest, &GatherAxis::in);
  const int64_t index = row / stride;
  first *= axis.out;
  if (axis.sources == nullptr) {
    return ForResultRows(rest, row % stride, first + index, body);
  }
  for (const int64_t result : ResultsOf(axis, index)) {
    ForResultRows(rest, row % stride, first + result, body);
  }
}

// A unit of an operand, by its row and its index along the inner axis.
struct Unit {
  int64_t row, column;
};

// Calls body(result) with each unit of the result that is a copy of `unit`.
template <class Body>
void ForResults(const GatherShape& shape, const Unit& unit, const Body& body) {
  const GatherAxis& inner = shape.inner;
  ForResultRows(shape.rows, unit.row, 0, [&](int64_t row) {
    if (inner.sources == nullptr) return body(row * inner.out + unit.column);
    for (const int64_t column : ResultsOf(inner, unit.column)) {
      body(row * inner.out + column);
    }
  });
}

// Writes the sum of the results of one unit.
void SumUnit(const GatherShape& shape, DataType dtype, const Unit& unit,
             const std::byte* dy, std::byte* dx) {
  constexpr int64_t kChunk = 256;
  const int64_t to = (unit.row * shape.inner.in + unit.column) * shape.unit;
  for (int64_t first = 0; first < shape.unit; first += kChunk) {
    double sums[kChunk] = {};
    const int64_t count = std::min(kChunk, shape.unit - first);
    ForResults(shape, unit, [&](int64_t result) {
      const int64_t from = result * shape.unit + first;
      for (int64_t i = 0; i < count; ++i) {
        sums[i] += LoadElement(dtype, dy, from + i);
      }
    });
    for (int64_t i = 0; i < count; ++i) {
      StoreElement(dtype, static_cast<float>(sums[i]), dx, to + first + i);
    }
  }
}

}  // namespace

void ListResults(const GatherAxis& axis, int64_t* list) {
  int64_t* const results = list + axis.in + 1;
  std::fill_n(list, axis.in + 1, 0);
  for (int64_t i = 0; i < axis.out; ++i) {
    if (axis.sources[i] >= 0) ++list[axis.sources[i] + 1];
  }
  for (int64_t i = 0; i < axis.in; ++i) list[i + 1] += list[i];
  for (int64_t i = 0; i < axis.out; ++i) {
    if (axis.sources[i] >= 0) results[list[axis.sources[i]]++] = i;
  }
  // Each list's begin has moved to its end, which is the next list's begin.
  std::copy_backward(list, list + axis.in, list + axis.in + 1);
  list[0] = 0;
}

void GatherAxes(const AxisGather& gather, const void* x, float fill, void* y,
                RunParts run) {
  const GatherShape shape(gather);
  const auto* const from = static_cast<const std::byte*>(x);
  auto* const to = static_cast<std::byte*>(y);
  const int64_t bytes = shape.unit_bytes();
  const auto gather_units = [&](int64_t row, int64_t begin, int64_t end) {
    const int64_t source = SourceRow(shape.rows, row);
    std::byte* result = to + (row * shape.inner.out + begin) * bytes;
    const auto source_of = [&](int64_t i) {
      if (source < 0) return int64_t{-1};
      return shape.inner.sources == nullptr ? i : shape.inner.sources[i];
    };
    while (begin < end) {
      const int64_t first = source_of(begin);
      int64_t count = 1;
      while (begin + count < end &&
             source_of(begin + count) == (first < 0 ? -1 : first + count)) {
        ++count;
      }
      if (first < 0) {
        Fill(gather.dtype, fill, count * shape.unit, result);
      } else {
        std::memcpy(result, from + (source * shape.inner.in + first) * bytes,
                    count * bytes);
      }
      begin += count;
      result += count * bytes;
    }
  };
  shape.ForUnits(CountOfRows(shape.rows, &GatherAxis::out), shape.inner.out,
                 run, gather_units);
}

void SumGathered(const AxisGather& gather, const void* dy, void* dx,
                 RunParts run) {
  const GatherShape shape(gather);
  shape.ForUnits(CountOfRows(shape.rows, &GatherAxis::in), shape.inner.in, run,
                 [&](int64_t row, int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     SumUnit(shape, gather.dtype, {row, i},
                             static_cast<const std::byte*>(dy),
                             static_cast<std::byte*>(dx));
                   }
                 });
}

}  // namespace convgrad
