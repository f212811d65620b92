// Adds the steps for a convolution's bias that the library's passes lack.
#pragma once

#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// Append what adds a bias, f32, to `result`, as a transposed convolution needs
// it; and what sums its gradient over the channels of `dy`, in double, where
// the library's sums are in f32.
void AddBias(BufferId bias, const NetworkTensor& result, Schedule* schedule);
void AddBiasGradient(const NetworkTensor& dy, BufferId gradient,
                     Schedule* schedule);

}  // namespace convgrad::onednn
