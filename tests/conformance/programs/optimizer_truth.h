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
  // Empty where there are none; "step" is `steps`.
  Values states[kMaxStates];
  Values average;
  int64_t steps = 0;
};

// The settings of one step.
struct OptimizerStep {
  Optimizer optimizer;
  UpdateSettings settings;
  std::vector<ParameterSettings> own;  // by parameter
};

// The value and the states of one element after a step.
struct SteppedElement {
  Bounded value, states[kMaxStates];
};

// Returns the states that the step keeps for parameter `i`.
StateSet KeptStates(const OptimizerStep& step, size_t i);

// Returns the norm of all gradients, scaled and limited.
double GradientNorm(const std::vector<SteppedParameter>& parameters,
                    const UpdateSettings& settings);

// Returns the factor that clips the norm as torch.nn.utils.clip_grad_norm_
// does. `norm` is the norm after scaling and limiting.
double ClipFactor(const UpdateSettings& settings, double norm);

// Returns parameter `i` after the step, by torch.optim's SGD, Adam, AdamW or
// RMSprop or by timm's Lamb, with the bound of f32's error. `before` is the
// parameter before the step.
std::vector<SteppedElement> ParameterAfter(const OptimizerStep& step, size_t i,
                                           double clip_factor,
                                           const SteppedParameter& before);

}  // namespace convgrad::testing_support
