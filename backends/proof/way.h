// Names ways and families. A *way* is the set of properties that decides which
// code computes an operation; the server proves each way once. A *family* is
// the user-visible name of a set of operations; the server refuses a family if
// one of its ways is wrong.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Returns the way of a plan with `implementation` for `operation`: the
// implementation with direction, ranks, kinds of groups, bias, residual, ReLU
// and scale, whether the channels of a group (of all groups, if they have one
// each) fill vectors of 16, and dtype and layout of every tensor. Operations
// with equal ways run the same code.
std::string WayOf(const ConvOperation& operation,
                  absl::string_view implementation);

// Returns e.g. "f16 transposed output with bias and residual in NCX/OIX": the
// operands' dtype, the result, and the layouts of the result and of the tensors
// on which it depends. Requires: `operation` requests `which`.
std::string FamilyOf(const ConvOperation& operation, Result which);

// Returns the implementation of a plan's pieces, i.e. IMPLEMENTATION for
// "batch*2(IMPLEMENTATION)". Returns other texts unchanged.
absl::string_view PiecesOf(absl::string_view implementation);

}  // namespace convgrad
