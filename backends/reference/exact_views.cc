// Computes operators whose results are views of an operand.
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/program/operators/views.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

StepView ViewOf(const StepData& data) {
  return SpecOf(data.step->op).view(StepDims(*data.step, *data.shapes));
}

Values ViewForward(const StepData& data) {
  const StepView view = ViewOf(data);
  Values y;
  ForEachIndex(data.result_dims(), view.strides, view.offset,
               [&](int64_t, int64_t at) { y.push_back(data.operands[0][at]); });
  return y;
}

StepGradients ViewBackward(const StepData& data,
                           absl::Span<const double> gradient) {
  const StepView view = ViewOf(data);
  StepGradients gradients = ZeroGradients(data);
  ForEachIndex(data.result_dims(), view.strides, view.offset,
               [&](int64_t i, int64_t at) { gradients[0][at] += gradient[i]; });
  return gradients;
}

}  // namespace

std::vector<ExactOperator> ExactViews() {
  std::vector<ExactOperator> rows;
  for (const OperatorSpec& spec : Operators()) {
    if (spec.view == nullptr) continue;
    rows.push_back({spec.op, &ViewForward, &ViewBackward});
  }
  return rows;
}

}  // namespace convgrad
