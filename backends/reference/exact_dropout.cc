// Computes dropout.
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Returns the factor of each element.
Values DropoutFactors(const StepData& data) {
  const int64_t count = CountOf(data.result_dims());
  Values factors(count, 1);
  if (!IsTraining(*data.step)) return factors;
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

Values DropoutForward(const StepData& data) {
  return Product(data.operands[0], DropoutFactors(data));
}

StepGradients DropoutBackward(const StepData& data,
                              absl::Span<const double> gradient) {
  return {Product(gradient, DropoutFactors(data))};
}

}  // namespace

std::vector<ExactOperator> ExactDropout() {
  return {{Operator::kDropout, &DropoutForward, &DropoutBackward}};
}

}  // namespace convgrad
