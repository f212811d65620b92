// `NetworkPlan` is the plan of a whole network: its forward, its backward or
// both, as one list of the library's primitives and our kernels.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"
#include "backends/onednn/execution/onednn_scheduled_plan.h"
#include "backends/onednn/networks/network_parts.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// MakeNetworkPlan makes it; immutable afterwards.
class NetworkPlan final : public ScheduledPlan {
 public:
  NetworkPlan(const NetworkOptions& options, NetworkParts parts);

  int quanta() const override { return static_cast<int>(quanta_.size()) - 1; }
  absl::StatusOr<RunTimes> RunQuantum(const RunBuffers& buffers,
                                      int quantum) const override {
    return RunSteps(buffers, quanta_[quantum], quanta_[quantum + 1]);
  }
  std::vector<FusedSteps> groups() const override { return groups_; }
  int64_t resident_bytes() const override {
    // A cache stores the text twice, in its list and in its map.
    return ScheduledPlan::resident_bytes() + 2 * text_bytes_;
  }

 private:
  void CutIntoQuanta(double macs_per_quantum);

  const std::vector<FusedSteps> groups_;
  const int64_t text_bytes_;
  // The first step of each quantum, then the end of the last quantum.
  std::vector<size_t> quanta_ = {0};
};

// Returns OK if MakeNetworkPlan supports all of the operation's steps, as far
// as that is known without asking the library. Fast.
// Errors: kUnimplemented naming the step and the operator, dtype or value.
absl::Status CheckNetwork(const ProgramOperation& operation);

// Returns the value of Backend::planning_bytes. Assumes that products and
// convolutions are primitives of the library, and all other steps functions.
int64_t NetworkPlanningBytes(const ProgramOperation& operation);

// Plans the operation. The plan's Run fails with kInvalidArgument, reason
// OUT_OF_RANGE, if a class index is out of range. Requires:
// CheckNetwork(operation).ok(). Errors: kUnimplemented if the library lacks a
// convolution; kInternal if it fails.
absl::StatusOr<std::unique_ptr<NetworkPlan>> MakeNetworkPlan(
    const ProgramOperation& operation, const NetworkOptions& options);

}  // namespace convgrad::onednn
