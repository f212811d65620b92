// Computes reshape, permute, slice, select, expand, read and detach.
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
  StepGradients gradients(data.operands.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    gradients[i].resize(data.operands[i].size());
  }
  ForEachIndex(data.result_dims(), view.strides, view.offset,
               [&](int64_t i, int64_t at) { gradients[0][at] += gradient[i]; });
  return gradients;
}

Values DetachForward(const StepData& data) {
  return {data.operands[0].begin(), data.operands[0].end()};
}

StepGradients DetachBackward(const StepData& data,
                             absl::Span<const double> /*gradient*/) {
  return {Values(data.operands[0].size())};
}

}  // namespace

std::vector<ExactOperator> ExactViews() {
  std::vector<ExactOperator> rows = {
      {Operator::kDetach, &DetachForward, &DetachBackward}};
  for (const OperatorSpec& spec : Operators()) {
    if (spec.view == nullptr) continue;
    rows.push_back({spec.op, &ViewForward, &ViewBackward});
  }
  return rows;
}

}  // namespace convgrad
