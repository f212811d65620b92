// `Partition` says how to cut an operation into pieces. Each piece is computed
// by one core in its own caches, so that the team doesn't share every loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad::onednn {

// The axis along which pieces are ranges.
enum class CutAxis {
  kNone,    // one piece
  kBatch,   // items
  kRows,    // the first spatial axis of a pointwise convolution
  kGroups,  // groups
};

struct Partition {
  CutAxis axis = CutAxis::kNone;
  // More than 1 makes pieces small enough for a core's caches.
  int pieces_per_thread = 1;

  friend bool operator==(const Partition&, const Partition&) = default;
};

// Returns "none", "batch", "groups*4", ...
std::string ToString(const Partition& partition);
std::optional<Partition> ParsePartition(absl::string_view text);

// Returns the number of units along `axis`: items, rows, groups or channels.
int64_t UnitsOf(const ConvProblem& problem, CutAxis axis);

// Returns the bounds of the pieces in units: the begin of each piece and the
// end of the last.
std::vector<int64_t> BoundsOf(const ConvProblem& problem,
                              const Partition& partition, int threads);

// Returns the partitions of `operation` into about equal pieces for `threads`
// cores, without the uncut one. Requires: Validate(operation).ok().
std::vector<Partition> PartitionsOf(const ConvOperation& operation,
                                    int threads);

// Returns the partition that is probably fastest: none, or one of `possible`.
Partition PredictPartition(const ConvOperation& operation,
                           const std::vector<Partition>& possible, int threads);

}  // namespace convgrad::onednn
