// Appends steps that compute a function of each element.
#pragma once

#include <memory>

#include "backends/kernels/operators/pointwise.h"
#include "backends/onednn/networks/schedule/network_groups.h"

namespace convgrad::onednn {

// Appends y = act(x).
void AddActivation(const ChannelBlocks& blocks, Pointwise op, BufferId x,
                   BufferId y, Schedule* schedule);
// Appends dx = dy * act'(saved). Ignores `saved` if IsLinear.
void AddActivateGradient(const ChannelBlocks& blocks, Pointwise op, BufferId dy,
                         BufferId saved, BufferId dx, Schedule* schedule);

// Returns the group of a step of one operand.
std::unique_ptr<NetworkGroup> MakeActivation(const ProgramStep& step,
                                             Pointwise op);

}  // namespace convgrad::onednn
