// Makes the groups of a network: each kind of group has a source file of its
// own.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/core/program/program.h"
#include "backends/core/program/program_shapes.h"
#include "backends/onednn/networks/schedule/network_groups.h"

namespace convgrad::onednn {

// One kind of group each.
std::unique_ptr<NetworkGroup> MakeConvolution(const ProgramStep& step);
// A convolution with the other steps.
std::unique_ptr<NetworkGroup> MakeFusedConvolution(
    const convgrad::Program& program, const ProgramShapes& shapes,
    const GroupSteps& steps);
std::unique_ptr<NetworkGroup> MakeLinear(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeNorm(const convgrad::Program& program,
                                       const GroupSteps& steps);
// An activation, or an add with or without a relu.
std::unique_ptr<NetworkGroup> MakeActivation(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeAdd(const convgrad::Program& program,
                                      const GroupSteps& steps);
// add and mul of a value with numbers per channel; mul of equal shapes.
std::unique_ptr<NetworkGroup> MakeBroadcast(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeProduct(const ProgramStep& step);
// Poolings and upsample.
std::unique_ptr<NetworkGroup> MakePooling(const ProgramStep& step);
// Returns at least the bytes of the tables that the group makes for a step; 0
// for other operators.
int64_t PoolingTableBytes(const ProgramStep& step, const ProgramShapes& shapes,
                          bool has_backward);
std::unique_ptr<NetworkGroup> MakeConcat(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeNormalize(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeDropout(const convgrad::Program& program,
                                          size_t index);
std::unique_ptr<NetworkGroup> MakeMse(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeFlatten(const ProgramStep& step);
std::unique_ptr<NetworkGroup> MakeCrossEntropy(const ProgramStep& step);

// Returns the group of these steps. Requires: CheckNetwork is OK.
std::unique_ptr<NetworkGroup> MakeGroup(const convgrad::Program& program,
                                        const ProgramShapes& shapes,
                                        const GroupSteps& steps);

}  // namespace convgrad::onednn
