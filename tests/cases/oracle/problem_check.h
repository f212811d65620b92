// These functions check a problem's forward and gradients, computed by a target
// on generated data.
#pragma once

#include "tests/cases/oracle/problem_data.h"

namespace convgrad::testing_support {

struct RunKind {
  DataType dtype = DataType::kF32;
  // The dtype of every result: that of the operands, or f32.
  DataType result_dtype = DataType::kF32;
  LayoutSet layouts;
  Numbers numbers = Numbers::kIntegers;
};

// Checks output, grad_input, grad_weight and grad_bias as a whole: integers bit
// for bit, reals by the element-wise criterion and the norm criterion.
Outcome CheckWhole(const CaseTarget& target, ProblemData* data,
                   const RunKind& kind);

// Checks some elements (ChooseElements with `count`), each computed on its own,
// without residual and ReLU. Integers with f32 results in NCX and OIX must also
// be exactly adjoint over all elements: <conv(x,w), g> = <x, grad_input> = <w,
// grad_weight>.
Outcome CheckSampled(const CaseTarget& target, ProblemData* data,
                     const RunKind& kind, int count);

}  // namespace convgrad::testing_support
