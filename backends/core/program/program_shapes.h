// `InferShapes` computes the shapes of all values of a program from those of
// its inputs.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/program/operators/step_dims.h"
#include "backends/core/program/program.h"

namespace convgrad {

// Infers the dims of every value by PyTorch's formulas. `inputs` has one entry
// for each of the program's inputs: activations of rank 2 to 5, indices of
// rank 1 to 4, every extent at least 1. Requires: Validate(program).ok().
// Errors: kInvalidArgument naming step, operand, found and expected; reason
// OVERFLOW if the bytes of all values in double don't fit in 63 bits.
absl::StatusOr<ProgramShapes> InferShapes(const Program& program,
                                          const std::vector<Dims>& inputs);

}  // namespace convgrad
