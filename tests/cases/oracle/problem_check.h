// A problem's forward and gradients on data of our own, asked of a target.
#pragma once

#include "tests/cases/oracle/problem_data.h"

namespace convgrad::testing_support {

struct RunKind {
  DataType dtype = DataType::kF32;
  // Of every result: the operands' or f32.
  DataType result_dtype = DataType::kF32;
  LayoutSet layouts;
  Numbers numbers = Numbers::kIntegers;
};

// Checks output, grad_input, grad_weight and grad_bias whole: integers bit for
// bit, reals by the element-wise and the norm criterion.
Outcome CheckWhole(const CaseTarget& target, ProblemData* data,
                   const RunKind& kind);

// The same at some elements (ChooseElements with `count`), each computed on
// its own; residual and ReLU are left out. Integers with f32 results in NCX and
// OIX must besides be exactly adjoint, over all elements:
// <conv(x,w), g> = <x, grad_input> = <w, grad_weight>.
Outcome CheckSampled(const CaseTarget& target, ProblemData* data,
                     const RunKind& kind, int count);

}  // namespace convgrad::testing_support
