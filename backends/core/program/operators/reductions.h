// Computes the axes that a sum, mean, amax, norm or var reduces.
#pragma once

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// The axes of a reduction.
struct ReducedAxes {
  Dims kept;  // the operand's dims, with 1 for each reduced axis
  bool keeps_dims;
  // True if only spatial axes are reduced.
  bool is_spatial;

  // Returns the result's dims.
  Dims result() const;
  std::vector<bool> is_reduced;  // by axis
};
// Requires: shapes of the step's program.
ReducedAxes ReducedAxesOf(const ProgramStep& step, const ProgramShapes& shapes);
// Returns whether the step is a reduction, which ReducedAxesOf requires.
bool IsReduction(const ProgramStep& step);

}  // namespace convgrad
