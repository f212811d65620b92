// `AddBias` adds a transposed convolution's bias, for which the library's pass
// has no place.
#pragma once

#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// Appends a step that writes y = x + bias. `x` and `bias` are f32; `y` is f32
// or bf16, and may be `x`.
void AddBias(BufferId bias, const NetworkTensor& x, const NetworkTensor& y,
             Schedule* schedule);

}  // namespace convgrad::onednn
