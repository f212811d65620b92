// An operation as a program of oneDNN primitives: mask, reorders, the ordinary
// convolutions it lowers to, bias sums and epilogues.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad::onednn {

// Requires: f32 or bf16, row-major layouts.
// Errors: kUnimplemented, kInternal.
absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, const PlanOptions& options);

}  // namespace convgrad::onednn
