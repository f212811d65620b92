// Depthwise passes of f16 by kernels of ours, where the library would have to
// compute in f32.
#pragma once

#include "absl/types/span.h"
#include "backends/kernels/convolutions/f16_depthwise.h"
#include "backends/onednn/convolutions/onednn_library_pass.h"

namespace convgrad::onednn {

// Appends the steps of a forward, or of one or both of the backward passes,
// which are then computed together. A pass for the weight with a bias also puts
// the bias's gradient there.
void AddF16Depthwise(const F16Depthwise& depthwise,
                     absl::Span<const PlacedPass> passes, PlanBuilder* builder);

}  // namespace convgrad::onednn
