// Checks results without a second implementation: a convolution's two gradients
// are its adjoints, so <conv(x,w), g> = <x, grad_input> = <w, grad_weight> for
// every g (proto/correctness.md, "Single results").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/core/convolution/conv_problem.h"

namespace convgrad {

// The three numbers, of them those that there are.
struct AdjointCheck {
  std::optional<double> forward;      // <conv(x,w), g>
  std::optional<double> grad_input;   // <x, grad_input>
  std::optional<double> grad_weight;  // <w, grad_weight>
  // Largest difference of any two, and the largest allowed.
  double difference = 0;
  double bound = 0;

  // False also where a number isn't finite.
  bool ok() const { return difference <= bound; }
};

// What the check is made of: values row-major in logical order, as rounded to
// the request's dtypes; pointers may be null where there is none. `grad_output`
// is masked already. `output` is the sum before bias, residual and ReLU.
struct AdjointValues {
  const std::vector<double>* input = nullptr;
  const std::vector<double>* weight = nullptr;
  const std::vector<double>* grad_output = nullptr;
  const std::vector<double>* output = nullptr;
  const std::vector<double>* grad_input = nullptr;
  const std::vector<double>* grad_weight = nullptr;
  // Largest unit roundoff of the results compared.
  double unit_roundoff = 0;
  // True for independent zero-mean input, weight and grad_output: roundings
  // then add up like a random walk, and the bound can be far sharper.
  bool independent = false;
  // What was in the output beside the convolution, as sum(|g| * |added|).
  double added_scale = 0;
};

// Requires: input, weight and grad_output are there.
AdjointCheck CheckAdjoint(const ConvProblem& problem,
                          const AdjointValues& values);

// Returns sum(|g| * S), S being the forward on absolute values: the contract's
// measure of what differences are worth. Exact where that is cheap, otherwise
// estimated from evenly spread outputs.
double AdjointScale(const ConvProblem& problem, const AdjointValues& values);

double InnerProduct(const std::vector<double>& a, const std::vector<double>& b);

// Returns g = (output > 0) ? grad_output : 0, a select.
std::vector<double> MaskByOutput(const std::vector<double>& grad_output,
                                 const std::vector<double>& output);

}  // namespace convgrad
