// Defines arithmetic and comparisons of two operands, or of one operand and a
// constant, and choices by their results.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
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

// Returns the dims to which all operands are broadcast.
absl::StatusOr<Dims> BroadcastAll(const StepDims& step) {
  Dims dims = step.At(0);
  for (size_t i = 1; i < 3 && step.Has(i); ++i) {
    const Dims& other = step.At(i);
    bool fits = other.size() == dims.size();
    for (size_t axis = 0; fits && axis < dims.size(); ++axis) {
      fits = dims[axis] == other[axis] || dims[axis] == 1 || other[axis] == 1;
      if (dims[axis] == 1) dims[axis] = other[axis];
    }
    if (!fits) {
      return BadShape(step.FieldOf(i), other,
                      absl::StrCat(ToString(dims), ", or 1 along any axis"));
    }
  }
  return dims;
}

// Checks that a step has either the operand b, its last one, or `other`.
absl::Status CheckOther(const ProgramStep& step, const std::string& path) {
  const size_t last = SpecOf(step.op).operands.size() - 1;
  const bool has_b = !OperandAt(step, last).empty();
  const bool has_other = HasAttribute(step, "other");
  if (has_b != has_other) return absl::OkStatus();
  return Missing(path, has_b ? "b and other" : "neither", "either b or other");
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

OperatorSpec Comparison(Operator op, absl::string_view name) {
  OperatorSpec spec = WithConstant(op, name);
  spec.attributes[0].may_be_infinite = true;
  spec.has_gradient = false;
  return spec;
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
  OperatorSpec where = WithConstant(Operator::kWhere, "where");
  where.operands.insert(where.operands.begin(),
                        {.name = "condition", .keeps_dtype = true});
  where.attributes[0].may_be_infinite = true;
  where.infer = &BroadcastAll;
  return WithAnyFeatures(
      {WithConstant(Operator::kAdd, "add"), WithConstant(Operator::kSub, "sub"),
       WithConstant(Operator::kMul, "mul"),
       WithConstant(Operator::kDiv, "div", OperandRange::kPositive),
       WithKink(Operator::kMaximum, "maximum"),
       WithKink(Operator::kMinimum, "minimum"), std::move(prelu),
       Comparison(Operator::kEq, "eq"), Comparison(Operator::kLt, "lt"),
       Comparison(Operator::kLe, "le"), Comparison(Operator::kGt, "gt"),
       Comparison(Operator::kGe, "ge"), std::move(where)});
}

}  // namespace convgrad
