// `RangeOf` bounds the values of a run by its inputs and parameters.
#pragma once

#include <string>

#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Appends steps that compute a bound of the value `name` from the inputs and
// parameters, and returns it, an F64 for later steps. No element of the value
// is larger in magnitude, in whatever order sums are computed, and none is NaN.
// The bound is Inf or NaN if there is none for this run. Returns kNoBuffer if
// one of the steps before the value has no rule.
BufferId RangeOf(const std::string& name, NetworkBuilder* builder);

}  // namespace convgrad::onednn
