#include "client/cpp/command_line/checks/adjoint_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

// Relative tolerance of an adjoint comparison in the contract, in addition to
// the results' roundoff.
constexpr double kSlack = 1e-6;
// Largest sum of independent roundings, in standard deviations.
constexpr double kDeviations = 10;
// Limit on the products for the scale; beyond it the scale is estimated.
constexpr int64_t kMaxProducts = 20'000'000;

// Returns the ordinary convolution that has the products of a transposed one.
// The output's gradient is its input.
ConvProblem Mirror(ConvProblem problem) {
  problem.transposed = false;
  std::swap(problem.in_channels, problem.out_channels);
  for (SpatialAxis& axis : problem.axes) std::swap(axis.in, axis.out);
  return problem;
}

// Returns the element at row-major index `output` of the forward pass on
// absolute values. Requires: not transposed.
double AbsoluteForward(const ConvProblem& problem,
                       const std::vector<double>& input,
                       const std::vector<double>& weight, int64_t output) {
  int64_t taps = 1, pixels = 1;
  for (const SpatialAxis& axis : problem.axes) {
    taps *= axis.kernel;
    pixels *= axis.in;
  }
  const int64_t channels = problem.in_channels / problem.groups;
  double sum = 0;
  for (int64_t tap = 0; tap < taps; ++tap) {
    bool is_inside = true;
    int64_t place = output, kernel_place = tap, pixel = 0, stride = 1;
    for (size_t i = problem.axes.size(); i-- > 0;) {
      const SpatialAxis& axis = problem.axes[i];
      const int64_t at = place % axis.out * axis.stride - axis.pad_begin +
                         kernel_place % axis.kernel * axis.dilation;
      is_inside = is_inside && at >= 0 && at < axis.in;
      pixel += at * stride;
      stride *= axis.in;
      place /= axis.out;
      kernel_place /= axis.kernel;
    }
    if (!is_inside) continue;
    const int64_t item = place / problem.out_channels;
    const int64_t channel = place % problem.out_channels;
    const int64_t group = channel * problem.groups / problem.out_channels;
    const double* in =
        &input[(item * problem.groups + group) * channels * pixels + pixel];
    const double* factor = &weight[channel * channels * taps + tap];
    for (int64_t c = 0; c < channels; ++c) {
      sum += std::abs(in[c * pixels] * factor[c * taps]);
    }
  }
  return sum;
}

// Returns sqrt(sum((a * b)^2)).
double RootOfSquares(const std::vector<double>& a,
                     const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    sum += a[i] * b[i] * a[i] * b[i];
  }
  return std::sqrt(sum);
}

}  // namespace

std::vector<double> MaskByOutput(const std::vector<double>& grad_output,
                                 const std::vector<double>& output) {
  std::vector<double> masked(grad_output.size());
  for (size_t i = 0; i < masked.size(); ++i) {
    masked[i] = output[i] > 0 ? grad_output[i] : 0;
  }
  return masked;
}

double AdjointScale(const ConvProblem& problem, const AdjointValues& values) {
  const ConvProblem own = problem.transposed ? Mirror(problem) : problem;
  const auto [input, gradient] =
      problem.transposed ? std::pair(&values.grad_output, &values.input)
                         : std::pair(&values.input, &values.grad_output);
  const int64_t outputs = *CheckedProduct(OutputDims(own));
  if (outputs == 0) return 0;
  const int64_t per_output =
      std::max<int64_t>(*CheckedProduct(WeightDims(own)) / own.out_channels, 1);
  const int64_t samples =
      std::clamp<int64_t>(kMaxProducts / per_output, 1, outputs);
  // An odd stride doesn't coincide with extents that are powers of two.
  const int64_t stride = (outputs + samples - 1) / samples | 1;
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < outputs; i += stride, ++count) {
    sum += std::abs((*gradient)[i]) *
           AbsoluteForward(own, *input, values.weight, i);
  }
  return sum * (static_cast<double>(outputs) / static_cast<double>(count));
}

AdjointCheck CheckAdjoint(const ConvProblem& problem,
                          const AdjointValues& values) {
  AdjointCheck check;
  std::vector<double> numbers;
  double walk = 0;
  auto compare = [&](const std::vector<double>& operand,
                     const std::optional<std::vector<double>>& result,
                     std::optional<double>* number) {
    if (!result) return;
    *number = std::inner_product(operand.begin(), operand.end(),
                                 result->begin(), 0.0);
    numbers.push_back(**number);
    walk = std::max(walk, RootOfSquares(operand, *result));
  };
  compare(values.grad_output, values.output, &check.forward);
  compare(values.input, values.grad_input, &check.grad_input);
  compare(values.weight, values.grad_weight, &check.grad_weight);
  for (double a : numbers) {
    for (double b : numbers) {
      const double difference = std::abs(a - b);
      // Once NaN, the difference stays NaN.
      if (!(difference <= check.difference) && !std::isnan(check.difference)) {
        check.difference = difference;
      }
    }
  }
  const double scale = AdjointScale(problem, values) + values.added_scale;
  const double rounded =
      values.independent ? std::min(scale, kDeviations * walk) : scale;
  check.bound = kSlack * scale + values.unit_roundoff * rounded;
  return check;
}

}  // namespace convgrad
