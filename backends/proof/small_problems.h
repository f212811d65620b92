// Small operations that are computed as a large one is.
#pragma once

#include <vector>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Whether the reference computes `operation` in a few milliseconds, so that it
// can be its own proof.
bool IsCheap(const ConvOperation& operation);

// Returns forms of `operation` that the reference computes in at most some 20
// ms: few channels and positions, all channels and few positions, then few and
// all channels with as many positions as that time allows; with at most two
// items, but for linear problems, whose items are positions. Everything but
// extents is the operation's: kernel, strides, dilations, pads, kinds of bias
// and groups, dtypes, layouts, scales, what is left of the channels after
// vectors of 16 and of the positions after whole strides. Without duplicates;
// empty if none is small enough. Requires: Validate(operation).ok().
std::vector<ConvOperation> SmallProblems(const ConvOperation& operation);

}  // namespace convgrad
