// Computes which input elements each output of a pooling step reads.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// One spatial axis of a pooling step: extents, window, stride and pads, in
// elements. Each of the `out` windows has at least one element of the input.
struct PoolAxis {
  int64_t in, kernel, stride, dilation, pad_begin, pad_end, out;
};
// Returns the axes of a max_pool or avg_pool step. `pad_end` is large enough
// for the last window (ceil_mode), so it may be larger than the step's
// `padding`. An average counts only `padding` elements of it: see
// AveragedElements.
std::vector<PoolAxis> PoolAxesOf(const ProgramStep& step,
                                 const ProgramShapes& shapes);

// Elements from `begin` up to `end` along one axis.
struct AxisWindow {
  int64_t begin, end;
};
// Returns the window of output `index`, which may reach into the pads.
// Requires: axis.dilation == 1.
AxisWindow PaddedWindow(const PoolAxis& axis, int64_t index);
// Returns the number of elements along `axis` that an average with
// count_include_pad divides by: those of the input and of `padding` on both
// sides.
int64_t AveragedElements(const PoolAxis& axis, int64_t index);
// Returns the window of output `index` of an adaptive pooling.
AxisWindow AdaptiveWindow(int64_t in, int64_t out, int64_t index);
// Returns whether a step's windows are AdaptiveWindow.
bool HasAdaptiveWindows(const ProgramStep& step);

}  // namespace convgrad
