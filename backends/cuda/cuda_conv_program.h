// `MakeConvProgram` translates the steps of an operation to a program of cuDNN
// graphs and our kernels.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/cuda/cuda_candidates.h"
#include "backends/cuda/cuda_program.h"

namespace convgrad::cuda {

struct ConvProgram {
  Program program;
  // One "pass=engine/operands>result/format" per convolution; "sum" if there is
  // none.
  std::string implementation;
};

// Operands and results have the positions in DeviceMemory that ConvOperation
// gives them.
// Requires: Validate(operation).ok() and a batch of at least 1.
// Errors: kUnimplemented, kInternal.
absl::StatusOr<ConvProgram> MakeConvProgram(const ConvOperation& operation,
                                            const GraphPlanner& planner);

}  // namespace convgrad::cuda
