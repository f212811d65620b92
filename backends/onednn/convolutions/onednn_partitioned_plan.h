// `MakePartitionedPlan` returns a plan in which every core computes pieces of
// the operation, each piece with its own plan.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/onednn/convolutions/onednn_partition.h"
#include "backends/onednn/convolutions/onednn_planned_pieces.h"

namespace convgrad::onednn {

// Returns a plan for a team. Requires: `partition` is one of
// PartitionsOf(operation, options.threads).
// Errors: those of `planner`.
absl::StatusOr<std::unique_ptr<Plan>> MakePartitionedPlan(
    const ConvOperation& operation, const Partition& partition,
    const ComputeOptions& options, const PiecePlanner& planner);

}  // namespace convgrad::onednn
