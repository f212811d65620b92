// Defines normalize: (x - mean[c]) / std[c] of floating, U8 or U16 elements.
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"

namespace convgrad {
namespace {

absl::StatusOr<Dims> Normalize(const StepDims& step) {
  for (const absl::string_view name : {"mean", "std"}) {
    const auto count =
        static_cast<int64_t>(FloatsAttribute(step.step(), name).size());
    if (count == 1 || count == step.At(0)[1]) continue;
    return ShapeMismatch(
        absl::StrCat(".", name), absl::StrCat(count, " numbers"),
        absl::StrCat("one, or one per channel of ", ToString(step.At(0))));
  }
  return step.At(0);
}

absl::Status CheckDeviations(const ProgramStep& step, const std::string& path) {
  for (const double deviation : FloatsAttribute(step, "std")) {
    if (deviation != 0) continue;
    return OutOfRange(path + ".std", "0", "numbers other than 0");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<OperatorSpec> NormalizeOperators() {
  const AttributeSpec mean = {
      .name = "mean", .kind = AttributeKind::kFloats, .required = true};
  AttributeSpec deviation = mean;
  deviation.name = "std";
  return {{.op = Operator::kNormalize,
           .name = "normalize",
           .attributes = {mean, deviation},
           .infer = &Normalize,
           .check_attributes = &CheckDeviations}};
}

}  // namespace convgrad
