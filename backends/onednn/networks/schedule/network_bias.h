// `AddBiasGradient` sums the gradient of a bias. `AddBias` adds the bias of a
// transposed convolution, for which the library's pass has no place.
#pragma once

#include "absl/strings/string_view.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// Appends a step that sums the gradient over the channels of `dy` in double,
// because the library sums in f32.
void AddBiasGradient(absl::string_view kind, const NetworkTensor& dy,
                     BufferId gradient, Schedule* schedule);

// Appends a step that adds a bias to `y`. Both are f32.
void AddBias(BufferId bias, const NetworkTensor& y, Schedule* schedule);

}  // namespace convgrad::onednn
