// `BuildNetworkParts` builds the steps of a forward, of a backward or of both,
// and gives each buffer a place.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/program/program_operation.h"
#include "backends/onednn/execution/onednn_scheduled_plan.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

struct NetworkParts {
  PlacedSchedule placed;
  // As Plan::groups has them.
  std::vector<std::vector<std::string>> groups = {};
  // Of the operation's text, by which caches know the plan.
  int64_t text_bytes = 0;
};

// Errors: kUnimplemented where the library lacks a convolution; kInternal.
// Throws dnnl::error.
absl::StatusOr<NetworkParts> BuildNetworkParts(
    const ProgramOperation& operation, const NetworkOptions& options);

}  // namespace convgrad::onednn
