// Where the windows of poolings lie.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// One spatial axis of a pooling step: window, stride and pads, `out` windows,
// of which each has an element of the input.
struct PoolAxis {
  int64_t in, kernel, stride, dilation, pad_begin, pad_end, out;
};
// Returns the axes of a max_pool or avg_pool step; pad_end is large enough for
// the last window (ceil_mode), and may be larger than `padding`, which an
// average counts no more than (count_include_pad): see AveragedElements.
std::vector<PoolAxis> PoolAxesOf(const ProgramStep& step,
                                 const ProgramShapes& shapes);

// Elements from `begin` up to `end` along one axis.
struct AxisWindow {
  int64_t begin, end;
};
// Returns the window of output `index`, which may reach into the pads.
// Requires: axis.dilation == 1.
AxisWindow PaddedWindow(const PoolAxis& axis, int64_t index);
// Returns how many elements along `axis` the window counts when pads are
// counted: as far as the input and the padding (pad_begin on both sides) go.
int64_t AveragedElements(const PoolAxis& axis, int64_t index);
// Returns the window of output `index` of an adaptive pooling.
AxisWindow AdaptiveWindow(int64_t in, int64_t out, int64_t index);

}  // namespace convgrad
