// How a pass of a depthwise convolution makes its result from its source: the
// output from the input, or the input's gradient from the output's.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/convolution/conv_problem.h"

namespace convgrad::f16_depthwise {

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// A kernel tap, and where what it meets lies.
struct Tap {
  int64_t tap;
  int64_t at;
};

// Elements first, first + AxisShape::step, ... of the result, which meet the
// same taps: the i-th of them the source's element
//   source_first + i * AxisShape::source_step + Tap::at.
struct Phase {
  int64_t first, count;
  int64_t source_first;
  std::vector<Tap> taps;  // at least one
};

// One axis of a pass. The source lies between zeros, `left` of them before it,
// `padded` elements in all. Elements of the result that no phase has meet
// nothing.
struct AxisShape {
  int64_t result, source;  // elements
  int64_t step, source_step;
  int64_t left, padded;
  std::vector<Phase> phases;
};

AxisShape ForwardShape(const SpatialAxis& axis);
AxisShape BackwardShape(const SpatialAxis& axis);

struct Pass {
  Pass() = default;
  // An axis that isn't there is one element.
  Pass(AxisShape y, AxisShape x);

  AxisShape y, x;
  // Whether every element of the result is in a phase.
  bool is_covered = false;

  // The result is made in bands of so many rows, the last one smaller.
  int64_t band_rows = 0;
  // The most rows of the padded source that a band reads.
  int64_t source_rows = 0;

  int64_t bands() const { return (y.result + band_rows - 1) / band_rows; }
  Range Band(int64_t index) const;
  // A band's own share of the source's rows: shares are disjoint.
  Range Share(const Range& rows) const;
  // All the rows of the padded source that a band reads, its share included.
  Range Source(const Range& rows) const;
};

// Returns the part of a phase that lies in `rows`; count is 0 if there is none.
Phase Clip(const AxisShape& axis, const Phase& phase, const Range& rows);

}  // namespace convgrad::f16_depthwise
