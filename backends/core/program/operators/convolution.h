// Describes a conv, conv_transpose or linear step as a ConvProblem.
#pragma once

#include "backends/core/convolution/conv_problem.h"
#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// Returns the problem of a conv, conv_transpose or linear step, with the bias
// if the step has one. Requires: shapes of this program.
ConvProblem ProblemOf(const ProgramStep& step, const ProgramShapes& shapes);

}  // namespace convgrad
