// `ExactOperator` computes an operator of a program by its definition: the
// forward, and the backward as the product of the result's gradient and the
// operator's Jacobian. PyTorch defines the results, also for NaN and Inf. It
// doesn't round.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "backends/reference/program_step_data.h"

namespace convgrad {

// One operator. Each function is thread-safe.
struct ExactOperator {
  Operator op;
  Values (*forward)(const StepData& data);
  // Null: no gradient passes to the operands (OperatorSpec::has_gradient).
  StepGradients (*backward)(const StepData& data,
                            absl::Span<const double> gradient) = nullptr;
  // Checks the operands' values before the forward. Null: all are valid.
  absl::Status (*check)(const StepData& data) = nullptr;
  // Returns the new values of the operands that a training step updates; empty
  // for other operands. Null: the operator updates none.
  StepGradients (*update)(const StepData& data) = nullptr;
};

const ExactOperator& ExactOf(Operator op);

// Returns the row of `op` in a file's own table of functions.
template <typename Row, size_t kRows>
const Row& RowOf(const Row (&table)[kRows], Operator op) {
  size_t i = 0;
  while (table[i].op != op) ++i;
  return table[i];
}
// Returns the operators of such a table. They share `forward` and `backward`,
// which use RowOf.
template <typename Row, size_t kRows>
std::vector<ExactOperator> OperatorsOf(
    const Row (&table)[kRows], Values (*forward)(const StepData&),
    StepGradients (*backward)(const StepData&, absl::Span<const double>)) {
  std::vector<ExactOperator> operators;
  for (const Row& row : table) operators.push_back({row.op, forward, backward});
  return operators;
}

// Return the rows of the table; each source file has a function.
std::vector<ExactOperator> ExactConvolutions();
std::vector<ExactOperator> ExactNorms();
std::vector<ExactOperator> ExactPoolings();
std::vector<ExactOperator> ExactReductions();
std::vector<ExactOperator> ExactActivations();
std::vector<ExactOperator> ExactArithmetic();
std::vector<ExactOperator> ExactCopies();
std::vector<ExactOperator> ExactViews();
std::vector<ExactOperator> ExactSoftmaxes();
std::vector<ExactOperator> ExactProducts();
std::vector<ExactOperator> ExactDropout();
std::vector<ExactOperator> ExactLosses();

}  // namespace convgrad
