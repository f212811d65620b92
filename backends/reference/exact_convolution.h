// Computes a convolution by its definition, on doubles, without dtypes,
// layouts, scale or rounding. The reference backend stores these results, and
// tests compare with them.
#pragma once

#include <array>
#include <vector>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Operands indexed by Operand, each row-major in logical order; empty if the
// operation has none.
using ExactOperands = std::array<std::vector<double>, kOperandCount>;

// Returns result `which` of `operation`, row-major in logical order, before
// scale and rounding. Thread-safe.
// Requires: Validate(operation).ok(); `which` is requested; the operands that
// it needs, with the operation's dims.
std::vector<double> ExactResult(const ConvOperation& operation, Result which,
                                const ExactOperands& operands);

}  // namespace convgrad
