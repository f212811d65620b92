// Finds the row of an operator. The source files of the families fill the
// table.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/program/operators/operator_spec.h"

namespace convgrad {

// Ends the process, with the operator's name, if an operator doesn't have
// exactly one row. `operators` are those of the rows, ascending.
void RequireEachOnce(const std::vector<Operator>& operators);

// Returns the rows of all families, indexed by Operator. A folder that computes
// operators makes a table of its own rows with it. Requires: each operator has
// one row, whose member `op` names it.
template <typename Row>
std::vector<Row> OperatorTable(
    std::initializer_list<std::vector<Row>> families) {
  std::vector<Row> rows;
  for (const std::vector<Row>& family : families) {
    rows.insert(rows.end(), family.begin(), family.end());
  }
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.op < b.op; });
  std::vector<Operator> operators;
  for (const Row& row : rows) operators.push_back(row.op);
  RequireEachOnce(operators);
  return rows;
}

// Returns all operators, indexed by Operator. Valid as long as the process.
const std::vector<OperatorSpec>& Operators();
const OperatorSpec& SpecOf(Operator op);
absl::string_view NameOf(Operator op);
// Returns nullopt for an unknown name.
std::optional<Operator> ParseOperator(absl::string_view name);

// Return the rows of each family.
std::vector<OperatorSpec> ConvolutionOperators();
std::vector<OperatorSpec> BatchNormOperators();
std::vector<OperatorSpec> PoolingOperators();
std::vector<OperatorSpec> ReductionOperators();
std::vector<OperatorSpec> UpsampleOperators();
std::vector<OperatorSpec> ActivationOperators();
std::vector<OperatorSpec> ArithmeticOperators();
std::vector<OperatorSpec> CopyOperators();
std::vector<OperatorSpec> ViewOperators();
std::vector<OperatorSpec> MoveOperators();
std::vector<OperatorSpec> TokenOperators();
std::vector<OperatorSpec> ProductOperators();
std::vector<OperatorSpec> NormalizeOperators();
std::vector<OperatorSpec> LossOperators();

// Returns the rows changed to have features on any axis.
std::vector<OperatorSpec> WithAnyFeatures(std::vector<OperatorSpec> specs);

// Return the specs of attributes. A `default_text` of "" is no default. A
// number of an Ints may stand for all spatial axes.
AttributeSpec Flag(absl::string_view name, absl::string_view default_text);
AttributeSpec Int(absl::string_view name, absl::string_view default_text,
                  double minimum = kNoMinimum);
AttributeSpec Ints(absl::string_view name, absl::string_view default_text,
                   double minimum = kNoMinimum);
AttributeSpec Number(absl::string_view name, absl::string_view default_text,
                     double minimum = kNoMinimum);
AttributeSpec Word(absl::string_view name, absl::string_view default_text,
                   absl::string_view words);
// Returns `spec`, which has no default, as one that every step must give.
AttributeSpec Required(AttributeSpec spec);

}  // namespace convgrad
