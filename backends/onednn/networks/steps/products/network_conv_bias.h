// Adds the steps for a convolution's bias that the library's passes lack.
#pragma once

#include "absl/strings/string_view.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// Append a step that writes y = x + bias, for transposed convolutions; and a
// step that sums the bias's gradient over the channels of `dy` in double,
// because the library sums in f32. `x` and `bias` are f32; `y` is f32 or bf16,
// and may be `x`.
void AddBias(BufferId bias, const NetworkTensor& x, const NetworkTensor& y,
             Schedule* schedule);
void AddBiasGradient(absl::string_view kind, const NetworkTensor& dy,
                     BufferId gradient, Schedule* schedule);

}  // namespace convgrad::onednn
