// Defines batch_norm and group_norm.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::StatusOr<Dims> BatchNorm(const StepDims& step) {
  for (const size_t position : {1, 2, 3, 4}) {
    RETURN_IF_ERROR(step.CheckPerChannel(position));
  }
  const Dims& x = step.At(0);
  const bool has_one_value = std::all_of(
      x.begin() + 2, x.end(), [](int64_t extent) { return extent == 1; });
  if (IsTraining(step.step()) && x[0] == 1 && has_one_value) {
    return BadShape(".x", x, "more than one value per channel in training");
  }
  return x;
}

absl::StatusOr<Dims> GroupNorm(const StepDims& step) {
  for (const size_t position : {1, 2}) {
    RETURN_IF_ERROR(step.CheckPerChannel(position));
  }
  const int64_t groups = IntAttribute(step.step(), "groups");
  if (step.At(0)[1] % groups == 0) return step.At(0);
  return ShapeMismatch(
      ".groups", groups,
      absl::StrCat("a divisor of the channels of ", ToString(step.At(0))));
}

// Checks that running statistics are complete or, in training, omitted.
absl::Status CheckStatistics(const ProgramStep& step, const std::string& path) {
  const bool is_training = IsTraining(step);
  const bool has_mean = !OperandAt(step, 3).empty();
  const bool has_count = !OperandAt(step, 5).empty();
  if (has_mean != !OperandAt(step, 4).empty() ||
      (!has_mean && (!is_training || has_count))) {
    return Missing(path, "running statistics that are incomplete",
                   is_training ? "running_mean and running_var, or none"
                               : "running_mean and running_var");
  }
  const bool is_cumulative = WordAttribute(step, "momentum") == "none";
  if (is_training && is_cumulative && has_mean && !has_count) {
    return Missing(path + ".num_batches_tracked", "none",
                   "a parameter, for momentum=none counts");
  }
  return absl::OkStatus();
}

OperandSpec Optional(absl::string_view name, OperandKind kind) {
  return {.name = name, .kind = kind, .optional = true};
}

}  // namespace

std::vector<OperatorSpec> BatchNormOperators() {
  return {{.op = Operator::kBatchNorm,
           .name = "batch_norm",
           .operands = {{.name = "x"},
                        Optional("weight", OperandKind::kParameter),
                        Optional("bias", OperandKind::kParameter),
                        Optional("running_mean", OperandKind::kStatistic),
                        Optional("running_var", OperandKind::kStatistic),
                        Optional("num_batches_tracked", OperandKind::kCount)},
           .attributes = {Flag("training", "false"),
                          {.name = "momentum",
                           .kind = AttributeKind::kFloat,
                           .default_text = "0.1",
                           .words = "none"},
                          Number("eps", "1e-05", 0)},
           .infer = &BatchNorm,
           .check_operands = &CheckStatistics},
          {.op = Operator::kGroupNorm,
           .name = "group_norm",
           .operands = {{.name = "x"},
                        Optional("weight", OperandKind::kParameter),
                        Optional("bias", OperandKind::kParameter)},
           .attributes = {Required(Int("groups", "", 1)),
                          Number("eps", "1e-05", 0)},
           .infer = &GroupNorm}};
}

}  // namespace convgrad
