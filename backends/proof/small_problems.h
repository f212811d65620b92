// `SmallProblems` finds small operations that run the same code as a large one.
#pragma once

#include <vector>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Returns whether the reference computes `operation` in a few milliseconds, so
// that the operation itself can be its proof.
bool IsCheap(const ConvOperation& operation);

// Returns smaller forms of `operation` that the reference computes in at most
// about 20 ms: few channels and positions; all channels and few positions; then
// few and all channels with as many positions as the time allows. They have at
// most two items, except linear problems, whose items are positions. Only
// extents change: kernel, strides, dilations, pads, kinds of bias and groups,
// dtypes, layouts and scales stay. So do the remainder of the channels after
// vectors of 16, and that of the positions after whole strides. Without
// duplicates; empty if no form is small enough. Requires:
// Validate(operation).ok().
std::vector<ConvOperation> SmallProblems(const ConvOperation& operation);

}  // namespace convgrad
