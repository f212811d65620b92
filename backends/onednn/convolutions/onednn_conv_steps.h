// `BuildConvPlan` translates the steps of an operation to a plan of library
// primitives, our kernels and our loops.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/onednn/library/onednn_candidates.h"

namespace convgrad::onednn {

// The plan's implementation() has one "pass=implementation/format" per
// convolution; "sum" if there is none.
// Requires: Validate(operation).ok(); a batch of at least 1. Errors: kInternal.
absl::StatusOr<std::unique_ptr<Plan>> BuildConvPlan(
    const ConvOperation& operation, const ComputeOptions& options,
    const FormatPreference& preference);

}  // namespace convgrad::onednn
