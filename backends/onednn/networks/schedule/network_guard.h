// Appends the steps that find out whether a forward with fused convolutions may
// be wrong.
//
// The library's post-ops aren't right on every value. A PReLU of slope 0 stands
// in the place of a ReLU: it lets NaN through, but turns -Inf into NaN. NaN
// stays NaN from there on, so finite results depend on no such value. A clip
// hides NaN, so a relu6 is fused only where no value can be NaN. If a check
// fails, the plan runs again without fusing.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Appends what finds whether an element of `values`, f32, isn't finite. Returns
// an I32: 1 if so, else 0.
BufferId AddFiniteCheck(BufferId values, Schedule* schedule);

// Likewise, whether the F64 `range` is so large that a sum of values within it
// may overflow.
BufferId AddRangeCheck(BufferId range, Schedule* schedule);

// Likewise, whether one of the I32 `conditions` isn't 0.
BufferId AddAnyOf(const std::vector<BufferId>& conditions, Schedule* schedule);

// Whether scales may be multiplied into weights without fear that products
// leave the range of floats where the sums of the unscaled weights didn't; and
// shifts be added.
bool AreSafeFactors(absl::Span<const float> scales,
                    absl::Span<const float> shifts);

}  // namespace convgrad::onednn
