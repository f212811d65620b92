// Adds a network's 3x3 and 3x3x3 convolutions by Winograd's algorithm
// (backends/kernels/winograd), which takes about half the time of the
// library's.
#pragma once

#include "absl/strings/string_view.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_builder.h"
#include "backends/onednn/networks/steps/convolutions/network_fast_pass.h"

namespace convgrad::onednn {

// Returns whether Winograd's algorithm applies, and is faster by measured
// costs (backends/kernels/README.md).
bool IsFastByWinograd(const FastPass& pass);

// Appends the pass. Returns an I32 buffer, in which the step leaves 0 if it has
// computed the pass, and 1 if some element is too large or not finite: steps
// that depend on this buffer (Schedule::RunOnlyIf) must then compute it.
// Requires: IsFastByWinograd(pass).
BufferId AddWinograd(const FastPass& pass, absl::string_view kind,
                     NetworkBuilder* builder);

}  // namespace convgrad::onednn
