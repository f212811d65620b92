// `MakePooling` makes the groups of poolings and upsampling of images.
#pragma once

#include <memory>

#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {

// Returns the group of a pooling, an upsampling, or a mean or sum over spatial
// axes.
std::unique_ptr<NetworkGroup> MakePooling(const ProgramStep& step);

// These functions belong to a pooling's row (NetworkOperator).
absl::Status CheckPositions(const ProgramStep& step,
                            const ProgramShapes& shapes,
                            const std::string& path);
int64_t PoolTableBytes(const ProgramStep& step, const ProgramShapes& shapes,
                       bool has_backward);

}  // namespace convgrad::onednn
