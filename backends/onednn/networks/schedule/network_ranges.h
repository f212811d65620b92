// `RangeOf` bounds the values of a run by its inputs and parameters.
#pragma once

#include <string>

#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Returns an F64 that later steps may read: no element of the value `name` can
// be larger in magnitude, however sums are ordered, and none is NaN; Inf or NaN
// if nothing of the kind can be said of this run. Appends the steps that find
// it from the inputs and parameters. kNoBuffer if there is no rule for a step
// that the value comes from.
BufferId RangeOf(const std::string& name, NetworkBuilder* builder);

}  // namespace convgrad::onednn
