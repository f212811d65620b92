// Defines arithmetic of two operands, or of one operand and a constant.
#include <utility>

#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Returns the dims of a, to which b is broadcast.
absl::StatusOr<Dims> Broadcast(const StepDims& step) {
  if (step.Has(1)) RETURN_IF_ERROR(step.CheckBroadcast(1, step.At(0)));
  return step.At(0);
}

absl::Status CheckOther(const ProgramStep& step, const std::string& path) {
  const bool has_b = !OperandAt(step, 1).empty();
  const bool has_other = HasAttribute(step, "other");
  if (has_b != has_other) return absl::OkStatus();
  return InvalidField(Reason::kMissing, path, has_b ? "b and other" : "neither",
                      "either b or other");
}

// Returns the spec of an operator with the constant `other` instead of b.
OperatorSpec WithConstant(Operator op, absl::string_view name,
                          OperandRange range_of_b = OperandRange::kAny) {
  return {.op = op,
          .name = name,
          .operands = {{.name = "a"},
                       {.name = "b", .optional = true, .range = range_of_b}},
          .attributes = {Number("other", "")},
          .infer = &Broadcast,
          .check_operands = &CheckOther};
}

OperatorSpec WithKink(Operator op, absl::string_view name) {
  return {.op = op,
          .name = name,
          .operands = {{.name = "a"}, {.name = "b"}},
          .has_kink = true,
          .infer = &Broadcast};
}

}  // namespace

std::vector<OperatorSpec> ArithmeticOperators() {
  OperatorSpec prelu = WithKink(Operator::kPrelu, "prelu");
  prelu.operands[1].keeps_dtype = true;
  return WithAnyFeatures(
      {WithConstant(Operator::kAdd, "add"), WithConstant(Operator::kSub, "sub"),
       WithConstant(Operator::kMul, "mul"),
       WithConstant(Operator::kDiv, "div", OperandRange::kPositive),
       WithKink(Operator::kMaximum, "maximum"),
       WithKink(Operator::kMinimum, "minimum"), std::move(prelu)});
}

}  // namespace convgrad
