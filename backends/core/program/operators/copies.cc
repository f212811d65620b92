// Defines concat.
#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Returns the dims of the concatenation along `axis`.
absl::StatusOr<Dims> Concat(const StepDims& step) {
  Dims dims = step.At(0);
  ASSIGN_OR_RETURN(const size_t axis, step.Axis("axis"));
  for (size_t i = 1; i < step.step().operands.size(); ++i) {
    Dims expected = step.At(i);
    if (expected.size() == dims.size()) expected[axis] = dims[axis];
    if (expected != dims) {
      return BadShape(
          absl::StrCat(".operands[", i, "]"), step.At(i),
          absl::StrCat(ToString(step.At(0)), " but for axis ", axis));
    }
    const auto extent = CheckedAdd(dims[axis], step.At(i)[axis]);
    if (!extent) {
      return BadShape(".operands", step.At(i), "sizes below 2^63 bytes");
    }
    dims[axis] = *extent;
  }
  return dims;
}

}  // namespace

std::vector<OperatorSpec> CopyOperators() {
  return {{.op = Operator::kConcat,
           .name = "concat",
           .operands = {{.name = "first"}, {.name = "next"}},
           .attributes = {Int("axis", "1")},
           .variadic = true,
           .features = FeatureAxis::kAny,
           .infer = &Concat}};
}

}  // namespace convgrad
