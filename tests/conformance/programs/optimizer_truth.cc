#include "tests/conformance/programs/optimizer_truth.h"

#include <algorithm>
#include <cmath>

namespace convgrad::testing_support {
namespace {

// Computes torch.optim.SGD.
SteppedElement SgdOf(const ParameterSettings& own, Bounded gradient,
                     Bounded value, const Bounded* buffer) {
  if (own.weight_decay != 0) {
    gradient = gradient + Constant(own.weight_decay) * value;
  }
  SteppedElement element;
  Bounded direction = gradient;
  if (own.momentum != 0) {
    const Bounded momentum = Constant(own.momentum);
    const Bounded now =
        buffer == nullptr
            ? gradient
            : momentum * *buffer + Constant(1 - own.dampening) * gradient;
    element.states[0] = now;
    direction = own.nesterov != 0 ? gradient + momentum * now : now;
  }
  element.value = value - Constant(own.learning_rate) * direction;
  return element;
}

// Computes torch.optim.Adam and AdamW, in step `step` (from 1).
SteppedElement AdamOf(const ParameterSettings& own, bool is_decoupled,
                      int64_t step, Bounded gradient, Bounded value,
                      Bounded mean, Bounded square) {
  if (is_decoupled) {
    value = Constant(1 - own.learning_rate * own.weight_decay) * value;
  } else if (own.weight_decay != 0) {
    gradient = gradient + Constant(own.weight_decay) * value;
  }
  mean = own.beta1 > 0.5 ? mean + Constant(1 - own.beta1) * (gradient - mean)
                         : gradient - Constant(own.beta1) * (gradient - mean);
  square = Constant(own.beta2) * square +
           Constant(1 - own.beta2) * gradient * gradient;
  const auto t = static_cast<double>(step);
  const Bounded correction = Constant(std::sqrt(1 - std::pow(own.beta2, t)));
  const Bounded rate =
      Constant(own.learning_rate / (1 - std::pow(own.beta1, t)));
  const Bounded divisor = Root(square) / correction + Constant(own.epsilon);
  return {value - rate * (mean / divisor), {mean, square}};
}

}  // namespace

bool KeepsState(const OptimizerStep& step, size_t i) {
  return step.optimizer != Optimizer::kSgd || step.own[i].momentum != 0;
}

double GradientNorm(const std::vector<SteppedParameter>& parameters,
                    double scale) {
  double squares = 0;
  for (const SteppedParameter& parameter : parameters) {
    for (const double each : parameter.gradient) squares += each * each;
  }
  return std::sqrt(squares) * scale;
}

double GradientFactor(const OptimizerStep& step, double norm) {
  const UpdateSettings& settings = step.settings;
  if (settings.clip_norm == 0) return settings.gradient_scale;
  return settings.gradient_scale *
         std::min(1.0, settings.clip_norm / (norm + 1e-6));
}

SteppedElement ElementAfter(const OptimizerStep& step, size_t i, double factor,
                            const SteppedParameter& before, size_t at) {
  const ParameterSettings& own = step.own[i];
  const Bounded gradient = Constant(own.maximize != 0 ? -factor : factor) *
                           Exact(before.gradient[at]);
  const Bounded value = Exact(before.value[at]);
  Bounded states[2];
  const bool has_state = before.steps > 0 && KeepsState(step, i);
  for (size_t s = 0; s < 2; ++s) {
    if (has_state && !before.states[s].empty()) {
      states[s] = Exact(before.states[s][at]);
    }
  }
  if (step.optimizer == Optimizer::kSgd) {
    return SgdOf(own, gradient, value, has_state ? &states[0] : nullptr);
  }
  return AdamOf(own, step.optimizer == Optimizer::kAdamW, before.steps + 1,
                gradient, value, states[0], states[1]);
}

}  // namespace convgrad::testing_support
