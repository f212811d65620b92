// Defines layer_norm, rms_norm, softmax and log_softmax, which compute with
// rows of elements, mostly along the last axis.
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Returns the operand's dims. Checks that the parameters have the dims of the
// last `axes` axes.
absl::StatusOr<Dims> Norm(const StepDims& step) {
  const Dims& x = step.At(0);
  const int64_t axes = IntAttribute(step.step(), "axes");
  if (axes > static_cast<int64_t>(x.size())) {
    return OutOfRange(".axes", axes,
                      absl::StrCat("at most the rank of ", ToString(x)));
  }
  const Dims normalized(x.end() - axes, x.end());
  for (size_t i = 1; i < step.step().operands.size(); ++i) {
    if (!step.Has(i) || step.At(i) == normalized) continue;
    return BadShape(step.FieldOf(i), step.At(i), ToString(normalized));
  }
  return x;
}

absl::StatusOr<Dims> Softmax(const StepDims& step) {
  RETURN_IF_ERROR(step.Axis("axis").status());
  return step.At(0);
}

OperatorSpec NormSpec(Operator op, absl::string_view name,
                      std::vector<OperandSpec> operands) {
  return {.op = op,
          .name = name,
          .operands = std::move(operands),
          .attributes = {Int("axes", "1", 1), Number("eps", "1e-05", 0)},
          .features = FeatureAxis::kLast,
          .infer = &Norm};
}

OperatorSpec SoftmaxSpec(Operator op, absl::string_view name) {
  return {.op = op,
          .name = name,
          .attributes = {Int("axis", "-1")},
          .features = FeatureAxis::kLast,
          .infer = &Softmax};
}

}  // namespace

std::vector<OperatorSpec> TokenOperators() {
  const OperandSpec x = {.name = "x"};
  OperandSpec weight = {.name = "weight",
                        .kind = OperandKind::kParameter,
                        .optional = true,
                        .most_rank = kMaxValueRank};
  OperandSpec bias = weight;
  bias.name = "bias";
  return {NormSpec(Operator::kLayerNorm, "layer_norm", {x, weight, bias}),
          NormSpec(Operator::kRmsNorm, "rms_norm", {x, weight}),
          SoftmaxSpec(Operator::kSoftmax, "softmax"),
          SoftmaxSpec(Operator::kLogSoftmax, "log_softmax")};
}

}  // namespace convgrad
