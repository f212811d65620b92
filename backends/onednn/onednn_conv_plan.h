// An operation as a program of oneDNN primitives: mask, reorders, the ordinary
// convolutions it lowers to, bias sums and epilogues.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/conv_operation.h"
#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_partition.h"

namespace convgrad::onednn {

// Says how an operation shall be cut, or that the model may choose. What can't
// be cut so is computed whole.
using PartitionPreference = std::function<std::optional<Partition>(
    const ConvOperation& operation, int threads)>;

struct Preferences {
  FormatPreference format;
  PartitionPreference partition;
};

// Returns the preference for what a plan of this implementation() does: the
// formats of its passes and its partition. The text must outlive it.
Preferences PreferencesLike(absl::string_view implementation);

// Plans for a team of options.threads, or for one thread where the problem is
// too small for more. Follows the preferences where they can be followed, else
// what is predicted to be fastest.
// Errors: kInternal.
absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, ComputeOptions options,
    const Preferences& preferences);

}  // namespace convgrad::onednn
