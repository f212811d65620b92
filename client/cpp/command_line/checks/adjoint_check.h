// Checks results without a second implementation. A convolution's two gradients
// are its adjoints, so <conv(x,w), g> = <x, grad_input> = <w, grad_weight> for
// every g (proto/correctness.md, "Single results").
#pragma once

#include <optional>
#include <vector>

#include "backends/core/convolution/conv_problem.h"

namespace convgrad {

// The three inner products; nullopt for a missing result.
struct AdjointCheck {
  std::optional<double> forward;      // <conv(x,w), g>
  std::optional<double> grad_input;   // <x, grad_input>
  std::optional<double> grad_weight;  // <w, grad_weight>
  // Largest difference between any two, and the largest allowed.
  double difference = 0;
  double bound = 0;

  // Also false if a product isn't finite.
  bool ok() const { return difference <= bound; }
};

// Inputs of the check. Values are row-major in logical order, rounded to the
// request's dtypes. `grad_output` is masked already. `output` is the sum before
// bias, residual and ReLU. Results that there aren't are nullopt.
struct AdjointValues {
  std::vector<double> input = {}, weight = {}, grad_output = {};
  std::optional<std::vector<double>> output = {}, grad_input = {},
                                     grad_weight = {};
  // Largest unit roundoff among the compared results.
  double unit_roundoff = 0;
  // True for independent zero-mean input, weight and grad_output. Roundings
  // then add up like a random walk, which makes the bound much sharper.
  bool independent = false;
  // Magnitude of bias and residual in the output: sum(|g| * |added|).
  double added_scale = 0;
};

AdjointCheck CheckAdjoint(const ConvProblem& problem,
                          const AdjointValues& values);

// Returns sum(|g| * S), where S is the forward pass on absolute values. The
// contract measures differences relative to it. Exact if that is cheap,
// otherwise estimated from evenly spaced outputs.
double AdjointScale(const ConvProblem& problem, const AdjointValues& values);

// Returns g = (output > 0) ? grad_output : 0.
std::vector<double> MaskByOutput(const std::vector<double>& grad_output,
                                 const std::vector<double>& output);

}  // namespace convgrad
