// add and mul.
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Returns for each element of a broadcast's result the element of b.
std::vector<int64_t> BroadcastIndices(const StepData& data) {
  const ChannelView a(data.dims(0)), b(data.dims(1));
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < CountOf(data.dims(0)); ++i) {
    const int64_t n = i / (a.channels * a.positions);
    const int64_t c = a.ChannelOf(i);
    const int64_t at =
        (b.batch == 1 ? 0 : n) * b.channels + (b.channels == 1 ? 0 : c);
    const bool is_full = data.dims(0) == data.dims(1);
    indices.push_back(is_full ? i : at);
  }
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
