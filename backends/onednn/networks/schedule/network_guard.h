// Appends steps that check whether a forward with fused convolutions may be
// wrong. If a check fails, the plan runs again without fusion.
//
// The library's post-ops are wrong for some values. A PReLU with slope 0
// replaces the ReLU: NaN stays NaN, but -Inf becomes NaN. NaN stays NaN in
// later steps, so finite results don't depend on such a value. A comparison
// hides NaN, so its operands are checked. A clip hides NaN, so the library's
// relu6 is fused only if no value can be NaN.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "backends/core/data_type.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Appends a check for elements of `values` that aren't finite. Returns an I32:
// 1 if there are any, else 0.
BufferId AddFiniteCheck(DataType dtype, BufferId values, Schedule* schedule);

// Returns false if a sum of values within the range may overflow. So values
// with a safe range (network_ranges.h) are finite.
bool IsSafeRange(double range);

// Appends a check whether the F64 `range` isn't safe. Returns an I32 likewise.
BufferId AddRangeCheck(BufferId range, Schedule* schedule);

// Appends a check whether one of the I32 `conditions` isn't 0. Returns an I32
// likewise.
BufferId AddAnyOf(const std::vector<BufferId>& conditions, Schedule* schedule);

// Returns whether weights may be multiplied by the scales and the shifts added
// to the bias: products and sums then stay within the range of floats if those
// of the unscaled weights do.
bool AreSafeFactors(absl::Span<const float> scales,
                    absl::Span<const float> shifts);

}  // namespace convgrad::onednn
