// add and mul.
#include "absl/strings/str_cat.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"

namespace convgrad {
namespace {

// Equal shapes, or b is broadcast: (N or 1, C or 1, 1...).
absl::StatusOr<Dims> Broadcast(const StepDims& step) {
  const Dims& a = step.At(0);
  const Dims& b = step.At(1);
  if (a == b) return a;
  bool fits = a.size() == b.size();
  for (size_t i = 0; fits && i < a.size(); ++i) {
    fits = b[i] == 1 || (i < 2 && b[i] == a[i]);
  }
  if (fits) return a;
  return BadShape(".b", b,
                  absl::StrCat(ToText(a),
                               ", or batch and channels of it or 1, "
                               "and spatial extents of 1"));
}

}  // namespace

std::vector<OperatorSpec> ArithmeticOperators() {
  const std::vector<OperandSpec> both = {{.name = "a"}, {.name = "b"}};
  return {{.op = Operator::kAdd,
           .name = "add",
           .operands = both,
           .infer = &Broadcast},
          {.op = Operator::kMul,
           .name = "mul",
           .operands = both,
           .infer = &Broadcast}};
}

}  // namespace convgrad
