// Computes a dilated convolution as one 1x1 convolution for each element of its
// kernel (a tap) on the part of the image that the tap sees. Where the dilation
// is near the size of the image, as in DeepLabV3, most taps mostly see padding,
// which the library multiplies, too.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/steps/convolutions/network_fast_pass.h"

namespace convgrad::onednn {

// Returns whether the pass can be computed by taps, and that is faster by
// measured costs than the library or, if `has_winograd`, than Winograd's
// algorithm. `steps_before` are the plan's. Doesn't look at buffers.
bool IsFastByTaps(const FastPass& pass, bool has_winograd, size_t steps_before);

// Appends the pass. `name` is that of the step's result, for errors, which are
// those of AddConvPass. Throws dnnl::error. Requires: IsFastByTaps of the pass.
void AddByTaps(const FastPass& pass, absl::string_view kind,
               const std::string& name, Schedule* schedule);

}  // namespace convgrad::onednn
