// `MakeConvPlan` plans an operation as a schedule of oneDNN primitives: mask,
// reorders, the ordinary convolutions it lowers to, bias sums and epilogues.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {

// Returns a plan for a team of options.threads, or for one thread if the
// problem is too small for more. `like` is empty or the implementation() of
// another plan. The new plan uses that plan's formats and partition if
// `operation` supports them, and otherwise those that the cost model predicts
// to be fastest.
// Errors: kInternal.
absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, ComputeOptions options,
    absl::string_view like);

}  // namespace convgrad::onednn
