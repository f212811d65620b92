// concat and flatten.
#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"

namespace convgrad {
namespace {

// Along the channels.
absl::StatusOr<Dims> Concat(const StepDims& step) {
  Dims dims = step.At(0);
  for (size_t i = 1; i < step.step().operands.size(); ++i) {
    Dims expected = step.At(i);
    if (expected.size() == dims.size()) expected[1] = dims[1];
    if (expected != dims) {
      return BadShape(
          absl::StrCat(".operands[", i, "]"), step.At(i),
          absl::StrCat(ToText(step.At(0)), " but for the channels"));
    }
    const auto channels = CheckedAdd(dims[1], step.At(i)[1]);
    if (!channels)
      return BadShape(".operands", step.At(i), "sizes below 2^63 bytes");
    dims[1] = *channels;
  }
  return dims;
}

// (N, C, spatial...) to (N, C * spatial).
absl::StatusOr<Dims> Flatten(const StepDims& step) {
  const auto columns =
      CheckedProduct(absl::MakeConstSpan(step.At(0)).subspan(1));
  if (!columns) return BadShape(".x", step.At(0), "sizes below 2^63 bytes");
  return Dims{step.At(0)[0], *columns};
}

}  // namespace

std::vector<OperatorSpec> CopyOperators() {
  return {{.op = Operator::kConcat,
           .name = "concat",
           .operands = {{.name = "first"}, {.name = "next"}},
           .variadic = true,
           .infer = &Concat},
          {.op = Operator::kFlatten,
           .name = "flatten",
           .infer = &Flatten,
           .macs = [](const StepDims&) { return int64_t{0}; }}};
}

}  // namespace convgrad
