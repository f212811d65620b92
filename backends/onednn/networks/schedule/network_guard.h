// What tells whether a forward with convolutions fused may be wrong.
//
// The library's post-ops aren't right on every value. A PReLU of slope 0 in the
// place of a ReLU lets NaN through, but makes NaN of -Inf; from there on NaN
// stays, so that results which are finite depend on no such value. In a clip
// NaN is lost, which is why nothing that a relu6 is fused with may have any.
// Where that isn't so, the run is done again without fusing.
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
