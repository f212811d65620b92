// `ElementAfter` computes the effect of an optimizer step by PyTorch's
// formulas, which is the truth for a backend's steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/core/optimizer/update_operation.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/reference/program_step_data.h"
#include "tests/conformance/programs/running_error.h"

namespace convgrad::testing_support {

// One parameter with its gradient and state, before or after a step.
struct SteppedParameter {
  std::string name;
  Dims dims;
  Values value, gradient;
  Values states[2];  // empty where there are none
  int64_t steps = 0;
};

// The settings of one step.
struct OptimizerStep {
  Optimizer optimizer;
  UpdateSettings settings;
  std::vector<ParameterSettings> own;  // by parameter
};

// The value and the two states of one element after a step.
struct SteppedElement {
  Bounded value, states[2];
};

// Returns whether the step keeps a state for parameter `i`.
bool KeepsState(const OptimizerStep& step, size_t i);

// Returns the norm of all gradients, each multiplied by `scale`.
double GradientNorm(const std::vector<SteppedParameter>& parameters,
                    double scale);

// Returns the factor of the gradients: the step's scale, and the factor that
// clips the norm as torch.nn.utils.clip_grad_norm_ does. `norm` is the norm
// after scaling.
double GradientFactor(const OptimizerStep& step, double norm);

// Returns element `at` of parameter `i` after the step, by torch.optim's SGD,
// Adam or AdamW, with the bound of f32's error. `before` is the parameter
// before the step.
SteppedElement ElementAfter(const OptimizerStep& step, size_t i, double factor,
                            const SteppedParameter& before, size_t at);

}  // namespace convgrad::testing_support
