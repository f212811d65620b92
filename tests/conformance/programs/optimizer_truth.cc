#include "tests/conformance/programs/optimizer_truth.h"

#include <algorithm>
#include <cmath>

namespace convgrad::testing_support {
namespace {

// The operands of one element's step. `states` are 0 where there are none.
struct Element {
  Bounded gradient, value;
  Bounded states[kMaxStates];
  bool has_states;
};

Bounded Lerp(Bounded old, Bounded now, double weight) {
  return weight < 0.5 ? old + Constant(weight) * (now - old)
                      : now - Constant(1 - weight) * (now - old);
}

Bounded Decayed(const ParameterSettings& own, const Element& at) {
  if (own.weight_decay == 0) return at.gradient;
  return at.gradient + Constant(own.weight_decay) * at.value;
}

// Computes torch.optim.SGD.
SteppedElement SgdOf(const ParameterSettings& own, const Element& at) {
  const Bounded gradient = Decayed(own, at);
  SteppedElement element;
  Bounded direction = gradient;
  if (own.momentum != 0) {
    const Bounded momentum = Constant(own.momentum);
    const Bounded now =
        !at.has_states
            ? gradient
            : momentum * at.states[0] + Constant(1 - own.dampening) * gradient;
    element.states[0] = now;
    direction = own.nesterov != 0 ? gradient + momentum * now : now;
  }
  element.value = at.value - Constant(own.learning_rate) * direction;
  return element;
}

// Returns the moments of Adam, AdamW and LAMB.
SteppedElement MomentsOf(const ParameterSettings& own, const Element& at,
                         Bounded gradient) {
  SteppedElement element;
  element.states[0] = Lerp(at.states[0], gradient, 1 - own.beta1);
  element.states[1] = Constant(own.beta2) * at.states[1] +
                      Constant(1 - own.beta2) * gradient * gradient;
  return element;
}

// Returns the mean over the root of the squares, whose bias is corrected.
Bounded DirectionOf(const ParameterSettings& own, int64_t step,
                    const SteppedElement& element) {
  const Bounded correction =
      Constant(std::sqrt(1 - std::pow(own.beta2, static_cast<double>(step))));
  return element.states[0] /
         (Root(element.states[1]) / correction + Constant(own.epsilon));
}

double MeanCorrection(const ParameterSettings& own, int64_t step) {
  return 1 - std::pow(own.beta1, static_cast<double>(step));
}

// Computes torch.optim.Adam and AdamW, in step `step` (from 1).
SteppedElement AdamOf(const ParameterSettings& own, bool is_decoupled,
                      int64_t step, Element at) {
  const Bounded gradient = is_decoupled ? at.gradient : Decayed(own, at);
  if (is_decoupled) {
    at.value = Constant(1 - own.learning_rate * own.weight_decay) * at.value;
  }
  SteppedElement element = MomentsOf(own, at, gradient);
  const Bounded rate = Constant(own.learning_rate / MeanCorrection(own, step));
  element.value = at.value - rate * DirectionOf(own, step, element);
  return element;
}

// Computes torch.optim.RMSprop.
SteppedElement RmspropOf(const ParameterSettings& own, const Element& at) {
  const Bounded gradient = Decayed(own, at);
  SteppedElement element;
  element.states[0] = Constant(own.alpha) * at.states[0] +
                      Constant(1 - own.alpha) * gradient * gradient;
  Bounded variance = element.states[0];
  if (own.centered != 0) {
    const Bounded mean = Lerp(at.states[2], gradient, 1 - own.alpha);
    element.states[2] = mean;
    variance = variance - mean * mean;
  }
  Bounded direction = gradient / (Root(variance) + Constant(own.epsilon));
  if (own.momentum != 0) {
    direction = direction + Constant(own.momentum) * at.states[1];
    element.states[1] = direction;
  }
  element.value = at.value - Constant(own.learning_rate) * direction;
  return element;
}

// Replaces the elements' values, which are LAMB's updates, by the new values.
void Trust(const ParameterSettings& own, const Values& before,
           std::vector<SteppedElement>* elements) {
  double value_squares = 0, update_squares = 0, error = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const Bounded& update = (*elements)[i].value;
    value_squares += before[i] * before[i];
    update_squares += update.value * update.value;
    error += update.error * update.error;
  }
  Bounded ratio = {1, 0};
  if (own.weight_decay != 0 && value_squares > 0 && update_squares > 0) {
    const double norm = std::sqrt(update_squares);
    ratio.value = std::sqrt(value_squares) / norm;
    ratio.error = ratio.value * std::sqrt(error) / (norm - std::sqrt(error));
  }
  const Bounded rate = RoundedOnce(own.learning_rate * ratio.value,
                                   own.learning_rate * ratio.error);
  for (size_t i = 0; i < before.size(); ++i) {
    Bounded& value = (*elements)[i].value;
    value = Exact(before[i]) - rate * value;
  }
}

SteppedElement ElementAfter(const OptimizerStep& step,
                            const ParameterSettings& own, int64_t steps,
                            const Element& at) {
  switch (step.optimizer) {
    case Optimizer::kSgd:
      return SgdOf(own, at);
    case Optimizer::kRmsprop:
      return RmspropOf(own, at);
    case Optimizer::kLamb: {
      SteppedElement element = MomentsOf(own, at, at.gradient);
      element.value = DirectionOf(own, steps, element) *
                          Constant(1 / MeanCorrection(own, steps)) +
                      Constant(own.weight_decay) * at.value;
      return element;
    }
    default:
      return AdamOf(own, step.optimizer == Optimizer::kAdamW, steps, at);
  }
}

double Limited(double gradient, double limit) {
  return limit > 0 ? std::clamp(gradient, -limit, limit) : gradient;
}

// Limits an f32 gradient. One far beyond the limit only has the limit's error.
Bounded Limited(Bounded gradient, double limit) {
  const double least = std::fabs(gradient.value) - gradient.error;
  const double most = std::fabs(gradient.value) + gradient.error;
  if (limit <= 0 || most < limit) return gradient;
  const Bounded rounded = Constant(limit);
  return {Limited(gradient.value, limit),
          rounded.error + std::max(limit - least, 0.0)};
}

}  // namespace

StateSet KeptStates(const OptimizerStep& step, size_t i) {
  return KeptStates(step.optimizer, step.own[i]);
}

double GradientNorm(const std::vector<SteppedParameter>& parameters,
                    const UpdateSettings& settings) {
  double squares = 0;
  for (const SteppedParameter& parameter : parameters) {
    for (const double each : parameter.gradient) {
      const double used =
          Limited(each * settings.gradient_scale, settings.clip_value);
      squares += used * used;
    }
  }
  return std::sqrt(squares);
}

double ClipFactor(const UpdateSettings& settings, double norm) {
  if (settings.clip_norm == 0) return 1;
  return std::min(1.0, settings.clip_norm / (norm + 1e-6));
}

std::vector<SteppedElement> ParameterAfter(const OptimizerStep& step, size_t i,
                                           double clip_factor,
                                           const SteppedParameter& before) {
  const ParameterSettings& own = step.own[i];
  const UpdateSettings& settings = step.settings;
  std::vector<SteppedElement> elements;
  for (size_t at = 0; at < before.value.size(); ++at) {
    Element element = {};
    element.has_states = before.steps > 0 && KeptStates(step, i) != 0;
    const Bounded scaled =
        Constant(settings.gradient_scale) * Exact(before.gradient[at]);
    element.gradient = Limited(scaled, settings.clip_value) *
                       Constant(own.maximize != 0 ? -clip_factor : clip_factor);
    element.value = Exact(before.value[at]);
    for (size_t s = 0; s < kMaxStates; ++s) {
      if (element.has_states && !before.states[s].empty()) {
        element.states[s] = Exact(before.states[s][at]);
      }
    }
    elements.push_back(ElementAfter(step, own, before.steps + 1, element));
  }
  if (step.optimizer == Optimizer::kLamb) {
    Trust(own, before.value, &elements);
  }
  return elements;
}

}  // namespace convgrad::testing_support
