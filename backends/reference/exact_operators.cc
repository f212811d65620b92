#include "backends/reference/exact_operators.h"

#include "backends/core/program/operators/operator_table.h"

namespace convgrad {

const ExactOperator& ExactOf(Operator op) {
  static const auto& table =
      *new std::vector<ExactOperator>(OperatorTable<ExactOperator>(
          {ExactConvolutions(), ExactNorms(), ExactPoolings(),
           ExactReductions(), ExactActivations(), ExactArithmetic(),
           ExactCopies(), ExactViews(), ExactSoftmaxes(), ExactProducts(),
           ExactDropout(), ExactLosses()}));
  return table[static_cast<size_t>(op)];
}

}  // namespace convgrad
