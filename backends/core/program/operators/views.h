// `StepView` describes the result of operators that copy elements of the
// operand in another order or number: reshape, permute, slice, select, expand
// and read.
#pragma once

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// Element i of the result is element offset + sum of i[axis] * strides[axis] of
// the operand, which is row-major. Units: elements.
struct StepView {
  int64_t offset = 0;
  Dims strides;  // by axis of the result; 0 if the operand is repeated
};

}  // namespace convgrad
