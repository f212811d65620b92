// Defines element-wise functions and dropout. NaN propagates through all
// functions.
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/program_step.h"

namespace convgrad {
namespace {

absl::Status CheckLimits(const ProgramStep& step, const std::string& path) {
  if (HasAttribute(step, "min") || HasAttribute(step, "max")) {
    return absl::OkStatus();
  }
  return Missing(path, "neither min nor max", "at least one of them");
}

absl::Status CheckOrder(const ProgramStep& step, const std::string& path) {
  const StepNumbers limits = NumbersOf(step);
  if (limits.first <= limits.second) return absl::OkStatus();
  return OutOfRange(path + ".max_val", limits.second,
                    absl::StrCat("at least min_val, ", limits.first));
}

std::vector<OperandSpec> Operand(OperandRange range) {
  return {{.name = "x", .range = range}};
}

}  // namespace

std::vector<OperatorSpec> ActivationOperators() {
  const std::vector<OperandSpec> positive = Operand(OperandRange::kPositive);
  return WithAnyFeatures(
      {{.op = Operator::kRelu, .name = "relu", .has_kink = true},
       {.op = Operator::kRelu6, .name = "relu6", .has_kink = true},
       {.op = Operator::kLeakyRelu,
        .name = "leaky_relu",
        .attributes = {Number("negative_slope", "0.01")},
        .has_kink = true},
       {.op = Operator::kElu,
        .name = "elu",
        .attributes = {Number("alpha", "1.0")},
        .has_kink = true},
       {.op = Operator::kSigmoid, .name = "sigmoid"},
       {.op = Operator::kSilu, .name = "silu"},
       {.op = Operator::kTanh, .name = "tanh"},
       {.op = Operator::kGelu,
        .name = "gelu",
        .attributes = {Word("approximate", "none", "none|tanh")}},
       {.op = Operator::kMish, .name = "mish"},
       {.op = Operator::kSoftplus,
        .name = "softplus",
        .attributes = {Number("beta", "1.0"), Number("threshold", "20.0")}},
       {.op = Operator::kHardsigmoid, .name = "hardsigmoid", .has_kink = true},
       {.op = Operator::kHardswish, .name = "hardswish", .has_kink = true},
       {.op = Operator::kHardtanh,
        .name = "hardtanh",
        .attributes = {Number("min_val", "-1.0"), Number("max_val", "1.0")},
        .has_kink = true,
        .check_attributes = &CheckOrder},
       {.op = Operator::kClamp,
        .name = "clamp",
        .attributes = {Number("min", ""), Number("max", "")},
        .has_kink = true,
        .check_attributes = &CheckLimits},
       {.op = Operator::kNeg, .name = "neg"},
       {.op = Operator::kAbs, .name = "abs", .has_kink = true},
       {.op = Operator::kExp,
        .name = "exp",
        .operands = Operand(OperandRange::kWithinOne)},
       {.op = Operator::kSqrt, .name = "sqrt", .operands = positive},
       {.op = Operator::kRsqrt, .name = "rsqrt", .operands = positive},
       {.op = Operator::kReciprocal,
        .name = "reciprocal",
        .operands = positive},
       {.op = Operator::kLog, .name = "log", .operands = positive},
       {.op = Operator::kPow,
        .name = "pow",
        .operands = positive,
        .attributes = {Required(Number("exponent", ""))}},
       {.op = Operator::kSin, .name = "sin"},
       {.op = Operator::kCos, .name = "cos"},
       {.op = Operator::kDropout,
        .name = "dropout",
        .attributes = {{.name = "p",
                        .kind = AttributeKind::kFloat,
                        .default_text = "0.5",
                        .minimum = 0,
                        .maximum = 1},
                       Flag("training", "false"),
                       Flag("by_row", "false")},
        .is_random = true}});
}

}  // namespace convgrad
