// Translates the steps of an operation into a plan: primitives of the
// library, kernels and loops of ours.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/onednn/library/onednn_candidates.h"

namespace convgrad::onednn {

// Its implementation() has one "pass=implementation/format" per convolution;
// "sum" if there is none, "zero" for a batch of 0.
// Requires: Validate(operation).ok(). Errors: kInternal.
absl::StatusOr<std::unique_ptr<Plan>> BuildConvPlan(
    const ConvOperation& operation, const ComputeOptions& options,
    const FormatPreference& preference);

}  // namespace convgrad::onednn
