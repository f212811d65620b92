// add and mul.
#include "backends/core/program/operators/products.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Returns for each element of a broadcast's result the element of b.
std::vector<int64_t> BroadcastIndices(const StepData& data) {
  std::vector<int64_t> indices;
  ForEachIndex(data.result_dims(),
               BroadcastStrides(data.dims(1), data.result_dims()), 0,
               [&](int64_t, int64_t at) { indices.push_back(at); });
  return indices;
}

Values BroadcastForward(const StepData& data) {
  const std::vector<int64_t> indices = BroadcastIndices(data);
  const bool is_sum = data.step->op == Operator::kAdd;
  Values y;
  for (size_t i = 0; i < indices.size(); ++i) {
    const double a = data.operands[0][i];
    const double b = data.operands[1][indices[i]];
    y.push_back(is_sum ? a + b : a * b);
  }
  return y;
}

StepGradients BroadcastBackward(const StepData& data,
                                absl::Span<const double> gradient) {
  const std::vector<int64_t> indices = BroadcastIndices(data);
  const bool is_sum = data.step->op == Operator::kAdd;
  StepGradients gradients(2);
  gradients[0].resize(data.operands[0].size());
  gradients[1].resize(data.operands[1].size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const double a = data.operands[0][i];
    const double b = data.operands[1][indices[i]];
    gradients[0][i] = is_sum ? gradient[i] : gradient[i] * b;
    gradients[1][indices[i]] += is_sum ? gradient[i] : gradient[i] * a;
  }
  return gradients;
}

}  // namespace

std::vector<ExactOperator> ExactArithmetic() {
  return {{Operator::kAdd, &BroadcastForward, &BroadcastBackward},
          {Operator::kMul, &BroadcastForward, &BroadcastBackward}};
}

}  // namespace convgrad
