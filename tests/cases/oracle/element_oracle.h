// `ElementOf` computes single result elements from the definition, in double,
// for tensors that are too large for a whole oracle. It shares no code with the
// reference backend.
#pragma once

#include <array>
#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "tests/cases/oracle/table_fill.h"

namespace convgrad::testing_support {

// An operand in the form of table look-ups.
struct FilledOperand {
  const FillIndices* indices = nullptr;
  const ValueTable* table = nullptr;

  double At(int64_t i) const { return table->values()[(*indices)[i]]; }
};

using FilledOperands = std::array<FilledOperand, kOperandCount>;

struct ElementSum {
  double value = 0;
  double squares = 0;  // the same sum over squared operands
};

// Returns the element of result `which` at logical `index`, before scale and
// rounding, with the bias if there is one. Requires: no ReLU, no residual; a
// bias of shape (O) or none; a result of output, grad_input, grad_weight or
// grad_bias, and the operands that it needs.
ElementSum ElementOf(const ConvProblem& problem, Result which,
                     absl::Span<const int64_t> index,
                     const FilledOperands& operands);

// Returns logical indices of at least min(`target`, all) elements of the
// result, the same each time: every spatial corner, points on every border, the
// first and last channel of every group (at most 256 groups), and random ones.
// Returns all elements if there are at most twice `target`, and all elements of
// a bias gradient.
std::vector<Dims> ChooseElements(const ConvProblem& problem, Result which,
                                 int target);

}  // namespace convgrad::testing_support
