// Cuts an operation into pieces that single cores compute, each in its own
// caches, instead of letting the whole team share every loop of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad::onednn {

// What pieces are ranges of.
enum class CutAxis {
  kNone,    // one piece
  kBatch,   // items
  kRows,    // the first spatial axis of a pointwise convolution
  kGroups,  // groups
};

struct Partition {
  CutAxis axis = CutAxis::kNone;
  // More than 1 so that a piece's data stay in a core's caches.
  int pieces_per_thread = 1;

  friend bool operator==(const Partition&, const Partition&) = default;
};

// Returns "none", "batch", "groups*4", ...
std::string ToString(const Partition& partition);
std::optional<Partition> ParsePartition(absl::string_view text);

// Returns how many units `axis` of the problem has: items, rows, groups or
// channels.
int64_t UnitsOf(const ConvProblem& problem, CutAxis axis);

// Returns where each piece begins, and where the last one ends, in units.
std::vector<int64_t> BoundsOf(const ConvProblem& problem,
                              const Partition& partition, int threads);

// Returns the ways to cut `operation` into about equal pieces for `threads`
// cores, the uncut one not among them. Requires: Validate(operation).ok().
std::vector<Partition> PartitionsOf(const ConvOperation& operation,
                                    int threads);

// Returns the partition that is probably the fastest: none, or one of
// `possible`.
Partition PredictPartition(const ConvOperation& operation,
                           const std::vector<Partition>& possible, int threads);

}  // namespace convgrad::onednn
