// `AddF16Depthwise` computes depthwise f16 passes with our kernels, because the
// library would compute them in f32.
#pragma once

#include "absl/types/span.h"
#include "backends/kernels/convolutions/f16_depthwise.h"
#include "backends/onednn/convolutions/onednn_library_pass.h"

namespace convgrad::onednn {

// Appends the steps of a forward pass, or of one or both backward passes, which
// it computes together, for a team of `threads`. A weight pass with a bias also
// writes the bias gradient.
void AddF16Depthwise(const F16Depthwise& depthwise,
                     absl::Span<const PlacedPass> passes, int threads,
                     Schedule* schedule);

}  // namespace convgrad::onednn
