// An operation as a program of oneDNN primitives: mask, reorders, the ordinary
// convolutions it lowers to, bias sums and epilogues.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/onednn/onednn_candidates.h"

namespace convgrad::onednn {

// Plans for a team of `threads`, or for one thread where the problem is too
// small for more. Each pass works in the format that `preference` names if the
// library has it, else in the one predicted to be fastest.
// Errors: kUnimplemented, kInternal.
absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, int threads,
    const FormatPreference& preference);

}  // namespace convgrad::onednn
