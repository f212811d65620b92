// Computes poolings and upsampling.
#include <algorithm>
#include <cmath>

#include "backends/reference/exact_axis_maps.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

int64_t PlanesOf(const StepData& data) {
  return data.dims(0)[0] * data.dims(0)[1];
}

// Returns for each output the input that it copies: the first of equal ones,
// the last of NaNs, as in PyTorch.
std::vector<int64_t> Maxima(const StepData& data) {
  const auto x = data.operands[0];
  std::vector<int64_t> maxima(CountOf(data.result_dims()), -1);
  ForEachTap(AxisMapsOf(data), PlanesOf(data),
             [&](int64_t out, int64_t in, double, double) {
               int64_t& best = maxima[out];
               if (best < 0 || x[in] > x[best] || std::isnan(x[in])) best = in;
             });
  return maxima;
}

// Returns the terms of the longest sum.
int64_t TermsOf(const AxisMaps& maps) {
  size_t terms = 1;
  for (const AxisMap& map : maps) {
    size_t longest = 0;
    for (const auto& taps : map.taps) longest = std::max(longest, taps.size());
    terms *= longest;
  }
  return static_cast<int64_t>(terms);
}

Values MaxPoolForward(const StepData& data) {
  Values y;
  for (const int64_t in : Maxima(data)) y.push_back(data.operands[0][in]);
  return y;
}

StepGradients MaxPoolBackward(const StepData& data,
                              absl::Span<const double> gradient) {
  Values values(data.operands[0].size());
  const std::vector<int64_t> maxima = Maxima(data);
  for (size_t out = 0; out < maxima.size(); ++out) {
    values[maxima[out]] += gradient[out];
  }
  return {values};
}

// Computes operators that are linear along each axis: all except max_pool.
Values SeparableForward(const StepData& data) {
  const auto x = data.operands[0];
  Values y(CountOf(data.result_dims()));
  Values divisors(y.size());
  const AxisMaps maps = AxisMapsOf(data);
  ForEachTap(maps, PlanesOf(data),
             [&](int64_t out, int64_t in, double weight, double divisor) {
               y[out] += x[in] * weight;
               divisors[out] = divisor;
             });
  // Once for each rounding of a sum of this many terms.
  for (int64_t i = TermsOf(maps); i > 0; --i) data.WriteIntermediate(&y);
  for (size_t out = 0; out < y.size(); ++out) y[out] /= divisors[out];
  return y;
}

StepGradients SeparableBackward(const StepData& data,
                                absl::Span<const double> gradient) {
  Values values(data.operands[0].size());
  ForEachTap(AxisMapsOf(data), PlanesOf(data),
             [&](int64_t out, int64_t in, double weight, double divisor) {
               values[in] += gradient[out] * weight / divisor;
             });
  return {values};
}

}  // namespace

std::vector<ExactOperator> ExactPoolings() {
  return {{Operator::kMaxPool, &MaxPoolForward, &MaxPoolBackward},
          {Operator::kAvgPool, &SeparableForward, &SeparableBackward},
          {Operator::kAdaptiveAvgPool, &SeparableForward, &SeparableBackward},
          {Operator::kAdaptiveMaxPool, &MaxPoolForward, &MaxPoolBackward},
          {Operator::kUpsample, &SeparableForward, &SeparableBackward}};
}

}  // namespace convgrad
