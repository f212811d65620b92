// Every operator of a program by its definition: the forward, and the backward
// as the product of the result's gradient with the operator's Jacobian. PyTorch
// says what is meant, with NaN and Inf too. Nothing is rounded.
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
  StepGradients (*backward)(const StepData& data,
                            absl::Span<const double> gradient);
  // Checks the operands' values before the forward. Null: all are right.
  absl::Status (*check)(const StepData& data) = nullptr;
  // Returns the new values of the operands that a training step updates, empty
  // of the others. Null of an operator that has none.
  StepGradients (*update)(const StepData& data) = nullptr;
};

const ExactOperator& ExactOf(Operator op);

// The rows of the table, a source file each.
std::vector<ExactOperator> ExactConvolutions();
std::vector<ExactOperator> ExactNorms();
std::vector<ExactOperator> ExactPoolings();
std::vector<ExactOperator> ExactReductions();
std::vector<ExactOperator> ExactActivations();
std::vector<ExactOperator> ExactArithmetic();
std::vector<ExactOperator> ExactCopies();
std::vector<ExactOperator> ExactViews();
std::vector<ExactOperator> ExactTokens();
std::vector<ExactOperator> ExactProducts();
std::vector<ExactOperator> ExactDropout();
std::vector<ExactOperator> ExactLosses();

}  // namespace convgrad
