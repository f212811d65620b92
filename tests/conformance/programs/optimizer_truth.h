// What an optimizer step makes of its parameters, by PyTorch's formulas: the
// truth that a backend's steps are held against.
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

// One parameter with its gradient and state, or what a step makes of them.
struct SteppedParameter {
  std::string name;
  Dims dims;
  Values value, gradient;
  Values states[2];  // empty where there are none
  int64_t steps = 0;
};

// What one step asks for.
struct OptimizerStep {
  Optimizer optimizer;
  UpdateSettings settings;
  std::vector<ParameterSettings> own;  // by parameter
};

// What one element becomes: its value and two states.
struct SteppedElement {
  Bounded value, states[2];
};

// Returns whether the step leaves state for parameter `i`.
bool KeepsState(const OptimizerStep& step, size_t i);

// Returns the norm of all gradients, each multiplied by `scale`.
double GradientNorm(const std::vector<SteppedParameter>& parameters,
                    double scale);

// Returns what gradients are multiplied by, `norm` being theirs after scaling:
// the step's scale, and what clips the norm as torch.nn.utils.clip_grad_norm_
// does.
double GradientFactor(const OptimizerStep& step, double norm);

// Returns what the step makes of element `at` of parameter `i`, which is
// `before`, by torch.optim's SGD, Adam or AdamW, and how far f32 may be off.
SteppedElement ElementAfter(const OptimizerStep& step, size_t i, double factor,
                            const SteppedParameter& before, size_t at);

}  // namespace convgrad::testing_support
