// Translates the steps of an operation into a program: primitives of the
// library, kernels and loops of ours.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "backends/core/conv_operation.h"
#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_program.h"

namespace convgrad::onednn {

struct ConvProgram {
  Program program;
  // One "pass=implementation/format" per convolution.
  std::string implementation;
};

// Requires: Validate(operation).ok().
// Errors: kInternal.
absl::StatusOr<ConvProgram> MakeConvProgram(const ConvOperation& operation,
                                            const ComputeOptions& options,
                                            const FormatPreference& preference);

}  // namespace convgrad::onednn
