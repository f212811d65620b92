// Defines the losses: cross_entropy, and losses of each element and its target.
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/step_dims.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Returns the dims of a loss: none. A variable, because GCC 12 warns that a
// temporary is copied uninitialised.
const Dims& ScalarDims() {
  static const auto& dims = *new Dims;
  return dims;
}

// Returns the dims of the loss of logits (N, C, ...) and a target: class
// indices (N, ...), or probabilities (N, C, ...).
absl::StatusOr<Dims> CrossEntropy(const StepDims& step) {
  Dims expected = step.At(0);
  if (step.IsIndex(1)) expected.erase(expected.begin() + 1);
  if (step.At(1) != expected) {
    return BadShape(
        ".target", step.At(1),
        absl::StrCat(ToString(expected),
                     step.IsIndex(1)
                         ? ", the logits' dims without their channels"
                         : ", the logits' dims, for probabilities"));
  }
  const int64_t ignored = IntAttribute(step.step(), "ignore_index");
  if (!step.IsIndex(1) && ignored >= 0) {
    return InvalidField(Reason::kUnsupported, ".ignore_index", ignored,
                        "less than 0 for a target of probabilities");
  }
  RETURN_IF_ERROR(step.CheckPerChannel(2));
  return ScalarDims();
}

// Returns the dims of the loss of x and a target of the same dims.
absl::StatusOr<Dims> ElementLoss(const StepDims& step) {
  if (step.At(1) != step.At(0)) {
    return BadShape(".target", step.At(1), ToString(step.At(0)));
  }
  return ScalarDims();
}

absl::Status CheckDenominator(const ProgramStep& step,
                              const std::string& path) {
  if (!HasAttribute(step, "denominator")) return absl::OkStatus();
  if (WordAttribute(step, "reduction") != "mean") {
    return InvalidField(Reason::kUnsupported, path + ".denominator", "given",
                        "none unless reduction is mean");
  }
  const double value = FloatAttribute(step, "denominator");
  if (value > 0) return absl::OkStatus();
  return OutOfRange(path + ".denominator", value, "more than 0");
}

OperatorSpec Loss(OperatorSpec spec) {
  spec.attributes.push_back(Word("reduction", "mean", "mean|sum"));
  // The divisor of the mean; default: the number of its elements.
  spec.attributes.push_back(Number("denominator", ""));
  spec.is_loss = true;
  spec.check_attributes = &CheckDenominator;
  return spec;
}

OperatorSpec OfElements(Operator op, absl::string_view name,
                        std::vector<AttributeSpec> attributes = {}) {
  return Loss({.op = op,
               .name = name,
               .operands = {{.name = "x"}, {.name = "target"}},
               .attributes = std::move(attributes),
               .infer = &ElementLoss});
}

}  // namespace

std::vector<OperatorSpec> LossOperators() {
  return {
      Loss({.op = Operator::kCrossEntropy,
            .name = "cross_entropy",
            .operands = {{.name = "logits"},
                         {.name = "target",
                          .kind = OperandKind::kIndex,
                          .most_rank = 5,
                          .may_be_value = true},
                         {.name = "weight",
                          .kind = OperandKind::kConstant,
                          .optional = true}},
            .attributes = {{.name = "label_smoothing",
                            .kind = AttributeKind::kFloat,
                            .default_text = "0.0",
                            .minimum = 0,
                            .maximum = 1},
                           Int("ignore_index", "-100")},
            .infer = &CrossEntropy}),
      OfElements(Operator::kMse, "mse"), OfElements(Operator::kL1, "l1"),
      OfElements(Operator::kSmoothL1, "smooth_l1", {Number("beta", "1.0", 0)}),
      OfElements(Operator::kBinaryCrossEntropy,
                 "binary_cross_entropy_with_logits",
                 {Number("pos_weight", "1.0", 0)})};
}

}  // namespace convgrad
