// `KeepsNonfiniteApart` checks the effect of an Inf in one operand element on
// results (proto/single_calls.md, "Data types"). The Inf must reach every sum
// that contains it and no other sum, except sums that contain it only as a
// product with padding.
#pragma once

#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "gtest/gtest.h"

namespace convgrad::testing_support {

// Runs `operation` on small integers with Inf at one element of each operand in
// turn, and compares every result element with the reference. An operation that
// the backend refuses passes. Requires: no ReLU, which turns -Inf into 0.
testing::AssertionResult KeepsNonfiniteApart(const Backend& backend,
                                             const ConvOperation& operation);

}  // namespace convgrad::testing_support
