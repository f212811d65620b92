// `MakeConvSteps` translates the steps of an operation into a `StepList` of
// cuDNN's graphs and our kernels.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/cuda/cuda_candidates.h"
#include "backends/cuda/cuda_step_list.h"

namespace convgrad::cuda {

struct ConvSteps {
  StepList steps;
  // One "pass=engine/operands>result/format" per convolution; "sum" if there is
  // none.
  std::string implementation;
};

// Operands and results have the positions in DeviceMemory that ConvOperation
// gives them.
// Requires: Validate(operation).ok() and a batch of at least 1.
// Errors: kUnimplemented, kInternal.
absl::StatusOr<ConvSteps> MakeConvSteps(const ConvOperation& operation,
                                        const GraphTarget& target);

}  // namespace convgrad::cuda
