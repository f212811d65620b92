// The operator's definition on doubles, without dtypes, layouts, scale or
// rounding: what the reference backend stores and what tests measure against.
#pragma once

#include <array>
#include <vector>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Operands by Operand, each row-major in logical order; empty where the
// operation has none.
using ExactOperands = std::array<std::vector<double>, kOperandCount>;

// Returns grad_output where the ReLU's output is > 0 and 0 elsewhere, or
// grad_output itself if `problem` has no ReLU. A select: what a closed mask
// covers vanishes, NaN included.
std::vector<double> MaskedGradOutput(const ConvProblem& problem,
                                     const ExactOperands& operands);

// Returns result `which` of `operation`, row-major in logical order, before
// scale and rounding. Thread-safe.
// Requires: Validate(operation).ok(); `which` asked for; the operands that it
// needs, of the operation's dims.
std::vector<double> ExactResult(const ConvOperation& operation, Result which,
                                const ExactOperands& operands);

}  // namespace convgrad
