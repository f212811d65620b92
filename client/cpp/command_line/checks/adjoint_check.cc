#include "client/cpp/command_line/checks/adjoint_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace convgrad {
namespace {

// Relative tolerance of an adjoint comparison in the contract, in addition to
// the results' roundoff.
constexpr double kSlack = 1e-6;
// Largest sum of independent roundings, in standard deviations.
constexpr double kDeviations = 10;

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

AdjointCheck CheckAdjoint(const AdjointValues& values) {
  AdjointCheck check;
  std::vector<double> numbers;
  double walk = 0;
  auto compare = [&](const std::vector<double>& a,
                     const std::optional<std::vector<double>>& b,
                     std::optional<double>* number) {
    if (!b) return;
    *number = std::inner_product(a.begin(), a.end(), b->begin(), 0.0);
    numbers.push_back(**number);
    walk = std::max(walk, RootOfSquares(a, *b));
  };
  compare(values.output, values.grad_output, &check.forward);
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
  const double rounded = values.independent
                             ? std::min(values.scale, kDeviations * walk)
                             : values.scale;
  check.bound = kSlack * values.scale + values.unit_roundoff * rounded;
  return check;
}

}  // namespace convgrad
