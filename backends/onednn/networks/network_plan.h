// The plan of a whole network: all of its forward, its backward, or both, as
// one list of the library's primitives and kernels of ours.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"
#include "backends/onednn/execution/onednn_executor.h"
#include "backends/onednn/networks/network_parts.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Made by MakeNetworkPlan, then immutable.
class NetworkPlan final : public Plan {
 public:
  NetworkPlan(const NetworkOptions& options, NetworkParts parts);

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;
  int turns() const override { return static_cast<int>(turns_.size()) - 1; }
  absl::StatusOr<RunTimes> RunTurn(const RunBuffers& buffers,
                                   int turn) const override;
  int64_t scratch_bytes() const override {
    return executor_.placed().memory.scratch_bytes;
  }
  int64_t prepared_weight_bytes() const override {
    return executor_.placed().prepared.bytes;
  }
  int64_t tape_bytes() const override {
    return executor_.placed().memory.tape_bytes;
  }
  std::vector<std::vector<std::string>> groups() const override {
    return groups_;
  }
  int64_t resident_bytes() const override {
    // A cache has the text in its list and in its map.
    return executor_.resident_bytes() + 2 * text_bytes_;
  }
  absl::string_view implementation() const override { return "network"; }

  // Runs the steps [begin, end) of steps(), for measurements.
  absl::StatusOr<RunTimes> RunSteps(const RunBuffers& buffers, size_t begin,
                                    size_t end) const;
  const std::vector<NetworkStep>& steps() const { return executor_.steps(); }

 private:
  void CutTurns(double macs_per_turn);
  // Writes what lies between the buffers of the tape, so that equal runs give
  // equal bytes.
  void FillTapeGaps(std::byte* tape) const;

  const Executor executor_;
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
