// What a network's plan is made of: the steps of a forward, of a backward or of
// both, and a place for what they use.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/program/program_operation.h"
#include "backends/onednn/networks/network_memory.h"
#include "backends/onednn/networks/network_prepared.h"
#include "backends/onednn/networks/schedule/network_builder.h"
#include "backends/onednn/networks/schedule/network_schedule.h"

namespace convgrad::onednn {

struct NetworkParts {
  // The steps to run.
  Schedule schedule;
  // A place for all that they use.
  MemoryMap memory;
  // Where RunBuffers has the tape: kOwn says that there is none.
  NetworkBuffer tape;
  // As Plan::groups has them.
  std::vector<std::vector<std::string>> groups = {};
  // What depends on the parameters alone.
  PreparedParts prepared = {};
  // Of the operation's text, by which caches know the plan.
  int64_t text_bytes = 0;
};

// Errors: kUnimplemented where the library lacks a convolution; kInternal.
// Throws dnnl::error.
absl::StatusOr<NetworkParts> BuildNetworkParts(
    const ProgramOperation& operation, const NetworkOptions& options);

}  // namespace convgrad::onednn
