// Checks results without a second implementation. A convolution's two gradients
// are its adjoints, so <conv(x,w), g> = <x, grad_input> = <w, grad_weight> for
// every g (proto/correctness.md, "Single results").
#pragma once

#include <cmath>
#include <optional>
#include <vector>

namespace convgrad {

// The three inner products; nullopt for a missing result.
struct AdjointCheck {
  std::optional<double> forward;      // <conv(x,w), g>
  std::optional<double> grad_input;   // <x, grad_input>
  std::optional<double> grad_weight;  // <w, grad_weight>
  // Largest difference between any two, and the largest allowed.
  double difference = 0;
  double bound = 0;

  // Also false if a product or the bound isn't finite.
  bool ok() const { return difference <= bound && std::isfinite(bound); }
};

// Inputs of the check. Values are row-major in logical order, rounded to the
// request's dtypes. `grad_output` is masked already. `output` is the sum before
// bias, residual and ReLU.
struct AdjointValues {
  std::vector<double> input, weight, grad_output, output;
  // Absent if the call didn't request it.
  std::optional<std::vector<double>> grad_input, grad_weight;
  // Largest unit roundoff among the compared results.
  double unit_roundoff = 0;
  // True for independent zero-mean input, weight and grad_output. Roundings
  // then add up like a random walk, which makes the bound much sharper.
  bool independent = false;
  // sum(|g| * S), where S is the forward pass on absolute values, with the
  // bias and the residual that `output` had. The contract measures differences
  // relative to it.
  double scale = 0;
};

AdjointCheck CheckAdjoint(const AdjointValues& values);

// Returns g = (output > 0) ? grad_output : 0.
std::vector<double> MaskByOutput(const std::vector<double>& grad_output,
                                 const std::vector<double>& output);

}  // namespace convgrad
