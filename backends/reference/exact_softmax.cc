// Computes softmax and log_softmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Calls visit(first, stride, length) for each row of a softmax: its elements
// are first + i * stride.
template <typename Visit>
void ForEachRow(const StepData& data, const Visit& visit) {
  const Dims& x = data.dims(0);
  const size_t axis = AxisOf(data);
  int64_t stride = 1;
  for (size_t i = axis + 1; i < x.size(); ++i) stride *= x[i];
  const int64_t block = stride * x[axis];
  for (int64_t first = 0; first < CountOf(x); first += block) {
    for (int64_t i = 0; i < stride; ++i) visit(first + i, stride, x[axis]);
  }
}

bool IsLogarithm(const StepData& data) {
  return data.step->op == Operator::kLogSoftmax;
}

Values SoftmaxForward(const StepData& data) {
  const auto x = data.operands[0];
  Values y(x.size());
  ForEachRow(data, [&](int64_t first, int64_t stride, int64_t length) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      largest = std::max(largest, x[first + i * stride]);
    }
    for (int64_t i = 0; i < length; ++i) {
      sum += std::exp(x[first + i * stride] - largest);
    }
    for (int64_t i = 0; i < length; ++i) {
      const double above = x[first + i * stride] - largest;
      y[first + i * stride] =
          IsLogarithm(data) ? above - std::log(sum) : std::exp(above) / sum;
    }
  });
  return y;
}

StepGradients SoftmaxBackward(const StepData& data,
                              absl::Span<const double> gradient) {
  Values dx(gradient.size());
  ForEachRow(data, [&](int64_t first, int64_t stride, int64_t length) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t at = first + i * stride;
      sum += IsLogarithm(data) ? gradient[at] : gradient[at] * data.result[at];
    }
    for (int64_t i = 0; i < length; ++i) {
      const int64_t at = first + i * stride;
      dx[at] = IsLogarithm(data)
                   ? gradient[at] - std::exp(data.result[at]) * sum
                   : data.result[at] * (gradient[at] - sum);
    }
  });
  return {dx};
}

}  // namespace

std::vector<ExactOperator> ExactSoftmaxes() {
  return {{Operator::kSoftmax, &SoftmaxForward, &SoftmaxBackward},
          {Operator::kLogSoftmax, &SoftmaxForward, &SoftmaxBackward}};
}

}  // namespace convgrad
