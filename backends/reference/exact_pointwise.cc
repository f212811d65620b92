// What acts on each element by itself, and what copies.
#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

constexpr double kRelu6Top = 6;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Comparisons are written so that NaN goes through.
double Activated(const ProgramStep& step, double slope, double x) {
  switch (step.op) {
    case Operator::kRelu:
      return x <= 0 ? 0 : x;
    case Operator::kRelu6:
      return x <= 0 ? 0 : (x >= kRelu6Top ? kRelu6Top : x);
    case Operator::kLeakyRelu:
      return x > 0 ? x : x * slope;
    case Operator::kSigmoid:
      return Sigmoid(x);
    default:
      return x / (1 + std::exp(-x));  // silu
  }
}

// Returns the derivative at x, where the forward gave y; where it is 0, the
// gradient is selected away.
double Derivative(const ProgramStep& step, double slope, double x, double y) {
  switch (step.op) {
    case Operator::kRelu:
      return x <= 0 ? 0 : 1;
    case Operator::kRelu6:
      return x <= 0 || x >= kRelu6Top ? 0 : 1;
    case Operator::kLeakyRelu:
      return x > 0 ? 1 : slope;
    case Operator::kSigmoid:
      return y * (1 - y);
    default:
      return Sigmoid(x) * (1 + x * (1 - Sigmoid(x)));
  }
}

bool IsClipped(Operator op) {
  return op == Operator::kRelu || op == Operator::kRelu6;
}

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

// Returns what each element is multiplied by.
Values DropoutFactors(const StepData& data) {
  const int64_t count = CountOf(data.result_dims());
  Values factors(count, 1);
  if (!BoolAttribute(*data.step, "training")) return factors;
  const double p = FloatAttribute(*data.step, "p");
  const bool by_row = BoolAttribute(*data.step, "by_row");
  const int64_t row = count / data.result_dims()[0];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t element = by_row ? i / row : i;
    const PhiloxBlock words =
        DropoutWords(data.seed, static_cast<int64_t>(data.index), element / 4);
    const bool is_kept = words[element % 4] >= DropoutThreshold(p);
    factors[i] = is_kept ? 1 / (1 - p) : 0;
  }
  return factors;
}

Values Product(absl::Span<const double> a, const Values& b) {
  Values product(a.size());
  for (size_t i = 0; i < a.size(); ++i) product[i] = a[i] * b[i];
  return product;
}

// Calls visit(operand, begin, end) for each run of a concat's result that lies
// in one operand, `begin` and `end` being offsets in that operand.
template <typename Visit>
void ForEachRun(const StepData& data, const Visit& visit) {
  for (int64_t n = 0; n < data.result_dims()[0]; ++n) {
    for (size_t i = 0; i < data.operands.size(); ++i) {
      const int64_t row = CountOf(data.dims(i)) / data.dims(i)[0];
      visit(i, n * row, (n + 1) * row);
    }
  }
}

}  // namespace

Values ActivationForward(const StepData& data) {
  const double slope = FloatAttribute(*data.step, "negative_slope");
  Values y;
  for (const double x : data.operands[0]) {
    y.push_back(Activated(*data.step, slope, x));
  }
  return y;
}

StepGradients ActivationBackward(const StepData& data,
                                 absl::Span<const double> gradient) {
  const double slope = FloatAttribute(*data.step, "negative_slope");
  Values values;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double derivative =
        Derivative(*data.step, slope, data.operands[0][i], data.result[i]);
    const bool is_cut = derivative == 0 && IsClipped(data.step->op);
    values.push_back(is_cut ? 0 : gradient[i] * derivative);
  }
  return {values};
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

Values CopyForward(const StepData& data) {
  Values y;
  ForEachRun(data, [&](size_t i, int64_t begin, int64_t end) {
    const auto run = data.operands[i].subspan(begin, end - begin);
    y.insert(y.end(), run.begin(), run.end());
  });
  return y;
}

StepGradients CopyBackward(const StepData& data,
                           absl::Span<const double> gradient) {
  StepGradients gradients(data.operands.size());
  ForEachRun(data, [&](size_t i, int64_t begin, int64_t end) {
    const auto run = gradient.subspan(0, end - begin);
    gradients[i].insert(gradients[i].end(), run.begin(), run.end());
    gradient.remove_prefix(run.size());
  });
  return gradients;
}

Values DropoutForward(const StepData& data) {
  return Product(data.operands[0], DropoutFactors(data));
}

StepGradients DropoutBackward(const StepData& data,
                              absl::Span<const double> gradient) {
  return {Product(gradient, DropoutFactors(data))};
}

}  // namespace convgrad
