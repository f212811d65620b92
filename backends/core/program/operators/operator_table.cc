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
           NormalizeOperators(), DropoutOperators(), LossOperators()}));
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

std::vector<OperatorSpec> OfAnyRank(std::vector<OperatorSpec> specs) {
  for (OperatorSpec& spec : specs) {
    spec.features = FeatureAxis::kAny;
    spec.max_rank = kMaxValueRank;
  }
  return specs;
}

AttributeSpec Extents(absl::string_view name, absl::string_view default_text,
                      double minimum) {
  return {.name = name,
          .kind = AttributeKind::kInts,
          .default_text = default_text,
          .minimum = minimum};
}

AttributeSpec RequiredExtents(absl::string_view name) {
  return {.name = name,
          .kind = AttributeKind::kInts,
          .required = true,
          .minimum = 1};
}

AttributeSpec Flag(absl::string_view name, absl::string_view default_text) {
  return {.name = name, .default_text = default_text};
}

}  // namespace convgrad
