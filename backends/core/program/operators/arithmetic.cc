// add and mul.
#include "absl/strings/str_cat.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"

namespace convgrad {
namespace {

// b is broadcast to a.
absl::StatusOr<Dims> Broadcast(const StepDims& step) {
  const Dims& a = step.At(0);
  const Dims& b = step.At(1);
  if (a == b) return a;
  bool fits = a.size() == b.size();
  for (size_t i = 0; fits && i < a.size(); ++i) {
    fits = b[i] == 1 || b[i] == a[i];
  }
  if (fits) return a;
  return BadShape(".b", b, absl::StrCat(ToText(a), ", or 1 along any axis"));
}

}  // namespace

std::vector<OperatorSpec> ArithmeticOperators() {
  const std::vector<OperandSpec> both = {{.name = "a"}, {.name = "b"}};
  return OfAnyRank({{.op = Operator::kAdd,
                     .name = "add",
                     .operands = both,
                     .infer = &Broadcast},
                    {.op = Operator::kMul,
                     .name = "mul",
                     .operands = both,
                     .infer = &Broadcast}});
}

}  // namespace convgrad
