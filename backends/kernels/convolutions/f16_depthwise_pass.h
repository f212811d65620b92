// `Pass` describes how a pass of a depthwise convolution computes its result
// from its source: the output from the input, or the input's gradient from the
// output's.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/convolution/conv_problem.h"

namespace convgrad::f16_depthwise {

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// A kernel tap and the relative position of the source element that it reads.
struct Tap {
  int64_t tap;
  int64_t at;
};

// The elements first, first + AxisShape::step, ... of the result, which use the
// same taps. For a tap, the i-th of them reads the source's element
//   source_first + i * AxisShape::source_step + Tap::at.
struct Phase {
  int64_t first, count;
  int64_t source_first;
  std::vector<Tap> taps;  // at least one
};

// One axis of a pass. The source is padded with zeros: `left` of them in front,
// `padded` elements in total. Result elements outside all phases are 0.
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
  // A missing axis has one element.
  Pass(AxisShape y, AxisShape x);

  AxisShape y, x;
  // True if every element of the result is in a phase.
  bool is_covered = false;

  // Rows of the result per band; the last band has fewer.
  int64_t band_rows = 0;
  // Maximum number of rows of the padded source that a band reads.
  int64_t source_rows = 0;

  int64_t bands() const { return (y.result + band_rows - 1) / band_rows; }
  Range Band(int64_t index) const;
  // Returns the rows of the source that belong to this band alone.
  Range Share(const Range& rows) const;
  // Returns all rows of the padded source that a band reads, including its
  // share.
  Range Source(const Range& rows) const;
};

// Returns the part of a phase in `rows`; its count is 0 if there is none.
Phase Clip(const AxisShape& axis, const Phase& phase, const Range& rows);

}  // namespace convgrad::f16_depthwise
