// The plan of a whole network: all of its forward, its backward, or both, as
// one list of the library's primitives and kernels of ours.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"
#include "backends/onednn/execution/onednn_scheduled_plan.h"
#include "backends/onednn/networks/network_parts.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Made by MakeNetworkPlan, then immutable.
class NetworkPlan final : public ScheduledPlan {
 public:
  NetworkPlan(const NetworkOptions& options, NetworkParts parts);

  int turns() const override { return static_cast<int>(turns_.size()) - 1; }
  absl::StatusOr<RunTimes> RunTurn(const RunBuffers& buffers,
                                   int turn) const override {
    return RunSteps(buffers, turns_[turn], turns_[turn + 1]);
  }
  std::vector<std::vector<std::string>> groups() const override {
    return groups_;
  }
  int64_t resident_bytes() const override {
    // A cache has the text in its list and in its map.
    return ScheduledPlan::resident_bytes() + 2 * text_bytes_;
  }
  absl::string_view implementation() const override { return "network"; }

 private:
  void CutTurns(double macs_per_turn);

  const std::vector<std::vector<std::string>> groups_;
  const int64_t text_bytes_;
  // Where each turn's steps begin, and the last one's end.
  std::vector<size_t> turns_ = {0};
};

// Returns at least the bytes that planning takes for tables whose sizes follow
// from the extents of values.
int64_t NetworkTableBytes(const ProgramOperation& operation);

// Plans the operation. Its Run fails with kInvalidArgument, reason
// OUT_OF_RANGE, where a class index is none. Requires:
// CheckNetwork(operation).ok(). Errors: kUnimplemented where the library lacks
// a convolution; kInternal if it fails.
absl::StatusOr<std::unique_ptr<NetworkPlan>> MakeNetworkPlan(
    const ProgramOperation& operation, const NetworkOptions& options);

}  // namespace convgrad::onednn
