#include "backends/core/program/operators/operator_table.h"

#include <cstdio>
#include <cstdlib>

namespace convgrad {

void RequireEachOnce(const std::vector<Operator>& operators) {
  for (size_t i = 0; i <= static_cast<size_t>(kLastOperator); ++i) {
    if (i < operators.size() && operators[i] == static_cast<Operator>(i)) {
      continue;
    }
    std::fprintf(stderr, "Operator %zu has no row, or the one before has two\n",
                 i);
    std::abort();
  }
}

const std::vector<OperatorSpec>& Operators() {
  static const auto& table =
      *new std::vector<OperatorSpec>(OperatorTable<OperatorSpec>(
          {ConvolutionOperators(), BatchNormOperators(), PoolingOperators(),
           ReductionOperators(), UpsampleOperators(), ActivationOperators(),
           ArithmeticOperators(), CopyOperators(), ViewOperators(),
           MoveOperators(), TokenOperators(), ProductOperators(),
           NormalizeOperators(), LossOperators()}));
  return table;
}

const OperatorSpec& SpecOf(Operator op) {
  return Operators()[static_cast<size_t>(op)];
}

absl::string_view NameOf(Operator op) { return SpecOf(op).name; }

std::optional<Operator> ParseOperator(absl::string_view name) {
  for (const OperatorSpec& spec : Operators()) {
    if (spec.name == name) return spec.op;
  }
  return std::nullopt;
}

std::vector<OperatorSpec> WithAnyFeatures(std::vector<OperatorSpec> specs) {
  for (OperatorSpec& spec : specs) spec.features = FeatureAxis::kAny;
  return specs;
}

AttributeSpec Flag(absl::string_view name, absl::string_view default_text) {
  return {.name = name, .default_text = default_text};
}

AttributeSpec Int(absl::string_view name, absl::string_view default_text,
                  double minimum) {
  return {.name = name,
          .kind = AttributeKind::kInt,
          .default_text = default_text,
          .minimum = minimum};
}

AttributeSpec Ints(absl::string_view name, absl::string_view default_text,
                   double minimum) {
  return {.name = name,
          .kind = AttributeKind::kInts,
          .default_text = default_text,
          .minimum = minimum};
}

AttributeSpec Number(absl::string_view name, absl::string_view default_text,
                     double minimum) {
  return {.name = name,
          .kind = AttributeKind::kFloat,
          .default_text = default_text,
          .minimum = minimum};
}

AttributeSpec Word(absl::string_view name, absl::string_view default_text,
                   absl::string_view words) {
  return {.name = name,
          .kind = AttributeKind::kWord,
          .default_text = default_text,
          .words = words};
}

AttributeSpec Required(AttributeSpec spec) {
  spec.required = true;
  return spec;
}

}  // namespace convgrad
