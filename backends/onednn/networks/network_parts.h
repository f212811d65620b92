// `BuildNetworkParts` builds the steps of a forward, a backward or both, and
// assigns a place to each buffer.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/program/program_operation.h"
#include "backends/onednn/execution/onednn_scheduled_plan.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

struct NetworkParts {
  PlacedSchedule placed;
  // The groups for Plan::groups.
  std::vector<FusedSteps> groups = {};
  // Size of the operation's text, which is the plan's key in caches.
  int64_t text_bytes = 0;
};

// Errors: kUnimplemented if the library lacks a convolution; kInternal.
// Throws dnnl::error.
absl::StatusOr<NetworkParts> BuildNetworkParts(
    const ProgramOperation& operation, const NetworkOptions& options);

}  // namespace convgrad::onednn
