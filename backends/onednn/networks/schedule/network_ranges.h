// `RangeOf` bounds the values of a run by its inputs and parameters.
#pragma once

#include <string>

#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Appends steps that compute a bound of the value `name` from the inputs and
// parameters, and returns it, an F64 for later steps. If the bound is safe
// (IsSafeRange), no element of the value is larger in magnitude, in whatever
// order sums are computed, and none is NaN. Otherwise the bound says nothing: a
// sum may have overflowed, or an operand may be NaN. Returns kNoBuffer if one
// of the steps before the value has no rule.
BufferId RangeOf(const std::string& name, NetworkBuilder* builder);

}  // namespace convgrad::onednn
