// add and mul where the second operand is repeated along any axes.
#pragma once

#include <memory>

#include "backends/core/program/program.h"
#include "backends/onednn/networks/schedule/network_groups.h"

namespace convgrad::onednn {

// Returns the group of an add or a mul that repeats the second operand to the
// dims of the first one, and then computes element by element.
std::unique_ptr<NetworkGroup> MakeRepeated(const ProgramStep& step);

}  // namespace convgrad::onednn
