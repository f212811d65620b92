// Finds the row of an operator and makes the groups of a network.
#pragma once

#include <memory>

#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {

const NetworkOperator& NetworkOperatorOf(Operator op);

// Returns the group of these steps. Requires: CheckNetwork is OK.
std::unique_ptr<NetworkGroup> MakeGroup(const convgrad::Program& program,
                                        const ProgramShapes& shapes,
                                        const GroupSteps& steps);

}  // namespace convgrad::onednn
