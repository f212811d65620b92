// `ForbiddenEngines` names engines of cuDNN that compute a pass wrongly
// although cuDNN's numerical notes don't say so.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/cuda_graph.h"

namespace convgrad::cuda {

// Returns parts of cuDNN's names of the engines that must not compute `spec`:
// "eng22" is engine 22 with any knobs, "_k0=2" any engine with that knob. The
// list was measured with cuDNN 9.19 on an H200 by `cuda_engines 0 1 all`
// (tests/gpu). Measure it again for another version of cuDNN.
// Requires: pads that are the same at both ends of each axis.
std::vector<std::string> ForbiddenEngines(const GraphSpec& spec);

}  // namespace convgrad::cuda
