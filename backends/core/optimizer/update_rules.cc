#include "backends/core/optimizer/update_rules.h"

#include <algorithm>
#include <cmath>

namespace convgrad {
namespace {

// Applies a GradientRule to one element.
struct Gradient {
  float scale, limit, clip;
  bool is_limited;  // Also true if f32 rounds the limit to 0.

  Gradient(const GradientRule& rule, bool maximizes)
      : scale(static_cast<float>(
            (maximizes ? -rule.scale : rule.scale) *
            // Without a limit between them, one factor does for both.
            (rule.limit > 0 ? 1 : rule.clip))),
        limit(static_cast<float>(rule.limit)),
        clip(static_cast<float>(rule.clip)),
        is_limited(rule.limit > 0) {}

  float Of(float gradient) const {
    const float scaled = gradient * scale;
    return is_limited ? std::clamp(scaled, -limit, limit) * clip : scaled;
  }
};

// Returns old + weight * (now - old). Interpolates from the nearer end, as
// torch.lerp does, so that a far larger old value doesn't round off a new one
// with most of the weight.
float Lerp(float old, float now, float weight) {
  const float change = now - old;
  return weight < 0.5F ? old + weight * change : now - (1 - weight) * change;
}

float StateAt(const UpdateTensors& at, size_t state, int64_t i) {
  return at.states[state] == nullptr ? 0 : at.states[state][i];
}

void RunSgd(const ParameterSettings& settings, const Gradient& rule,
            const UpdateTensors& at, ElementRange range) {
  const auto weight_decay = static_cast<float>(settings.weight_decay);
  const auto momentum = static_cast<float>(settings.momentum);
  const auto rate = static_cast<float>(-settings.learning_rate);
  // The first momentum buffer is the gradient itself.
  const float fresh = at.states[0] == nullptr
                          ? 1.0F
                          : static_cast<float>(1 - settings.dampening);
  const bool has_momentum = settings.momentum != 0;
  const bool is_nesterov = settings.nesterov != 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    float direction = rule.Of(at.gradient[i]);
    if (weight_decay != 0) direction += weight_decay * at.value[i];
    if (has_momentum) {
      const float buffer = momentum * StateAt(at, 0, i) + fresh * direction;
      at.new_states[0][i] = buffer;
      direction = is_nesterov ? direction + momentum * buffer : buffer;
    }
    at.new_value[i] = at.value[i] + rate * direction;
  }
}

// The numbers of a step of Adam, AdamW or LAMB.
struct Moments {
  float beta2, epsilon, root, correction;
  // 1 - beta, rounded once.
  float fresh_mean, fresh_square;

  Moments(const ParameterSettings& settings, int64_t step)
      : beta2(static_cast<float>(settings.beta2)),
        epsilon(static_cast<float>(settings.epsilon)),
        root(static_cast<float>(std::sqrt(
            1 - std::pow(settings.beta2, static_cast<double>(step))))),
        correction(static_cast<float>(
            1 / (1 - std::pow(settings.beta1, static_cast<double>(step))))),
        fresh_mean(static_cast<float>(1 - settings.beta1)),
        fresh_square(static_cast<float>(1 - settings.beta2)) {}

  // The two moments of one element.
  struct Pair {
    float mean, square;
  };
  // Writes the moments with the gradient, and returns them.
  Pair Write(const UpdateTensors& at, int64_t i, float gradient) const {
    const Pair now = {
        Lerp(StateAt(at, 0, i), gradient, fresh_mean),
        beta2 * StateAt(at, 1, i) + fresh_square * gradient * gradient};
    at.new_states[0][i] = now.mean;
    at.new_states[1][i] = now.square;
    return now;
  }
  // Returns the mean over the root of the squares, with the bias of the squares
  // corrected.
  float Direction(Pair now) const {
    return now.mean / (std::sqrt(now.square) / root + epsilon);
  }
  // Returns LAMB's update before its trust ratio.
  float Update(const UpdateTensors& at, int64_t i, float weight_decay) const {
    const Pair now = {at.new_states[0][i], at.new_states[1][i]};
    return correction * Direction(now) + weight_decay * at.value[i];
  }
};

void RunAdam(bool is_decoupled, const ParameterSettings& settings,
             const Gradient& rule, const UpdateTensors& at,
             ElementRange range) {
  const Moments moments(settings, *at.new_step);
  const float weight_decay =
      is_decoupled ? 0 : static_cast<float>(settings.weight_decay);
  const float shrink = is_decoupled
                           ? static_cast<float>(1 - settings.learning_rate *
                                                        settings.weight_decay)
                           : 1.0F;
  const auto rate = static_cast<float>(
      -settings.learning_rate /
      (1 - std::pow(settings.beta1, static_cast<double>(*at.new_step))));
  for (int64_t i = range.begin; i < range.end; ++i) {
    float gradient = rule.Of(at.gradient[i]);
    if (weight_decay != 0) gradient += weight_decay * at.value[i];
    const Moments::Pair now = moments.Write(at, i, gradient);
    at.new_value[i] = at.value[i] * shrink + rate * moments.Direction(now);
  }
}

void RunRmsprop(const ParameterSettings& settings, const Gradient& rule,
                const UpdateTensors& at, ElementRange range) {
  enum : size_t { kSquare, kBuffer, kMean };
  const auto alpha = static_cast<float>(settings.alpha);
  const auto fresh = static_cast<float>(1 - settings.alpha);
  const auto weight_decay = static_cast<float>(settings.weight_decay);
  const auto momentum = static_cast<float>(settings.momentum);
  const auto epsilon = static_cast<float>(settings.epsilon);
  const auto rate = static_cast<float>(-settings.learning_rate);
  for (int64_t i = range.begin; i < range.end; ++i) {
    float gradient = rule.Of(at.gradient[i]);
    if (weight_decay != 0) gradient += weight_decay * at.value[i];
    const float square =
        alpha * StateAt(at, kSquare, i) + fresh * gradient * gradient;
    at.new_states[kSquare][i] = square;
    float variance = square;
    if (at.new_states[kMean] != nullptr) {
      const float mean = Lerp(StateAt(at, kMean, i), gradient, fresh);
      at.new_states[kMean][i] = mean;
      variance = square - mean * mean;
    }
    float direction = gradient / (std::sqrt(variance) + epsilon);
    if (at.new_states[kBuffer] != nullptr) {
      direction += momentum * StateAt(at, kBuffer, i);
      at.new_states[kBuffer][i] = direction;
    }
    at.new_value[i] = at.value[i] + rate * direction;
  }
}

void RunLambStates(const ParameterSettings& settings, const Gradient& rule,
                   const UpdateTensors& at, ElementRange range) {
  const Moments moments(settings, *at.new_step);
  for (int64_t i = range.begin; i < range.end; ++i) {
    moments.Write(at, i, rule.Of(at.gradient[i]));
  }
}

}  // namespace

double NormOf(double squares, const GradientRule& rule) {
  const double norm = std::sqrt(squares);
  return rule.limit > 0 ? norm : norm * std::abs(rule.scale);
}

double SquaresOf(const float* gradient, const GradientRule& rule,
                 ElementRange range) {
  double sum = 0;
  if (!(rule.limit > 0)) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      sum += static_cast<double>(gradient[i]) * gradient[i];
    }
    return sum;
  }
  const Gradient limited({rule.scale, rule.limit, 1}, false);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const double value = limited.Of(gradient[i]);
    sum += value * value;
  }
  return sum;
}

void RunStep(Optimizer optimizer, const ParameterSettings& settings,
             const GradientRule& rule, const UpdateTensors& tensors,
             ElementRange range) {
  const Gradient gradient(rule, settings.maximize != 0);
  switch (optimizer) {
    case Optimizer::kSgd:
      return RunSgd(settings, gradient, tensors, range);
    case Optimizer::kAdam:
      return RunAdam(false, settings, gradient, tensors, range);
    case Optimizer::kAdamW:
      return RunAdam(true, settings, gradient, tensors, range);
    case Optimizer::kRmsprop:
      return RunRmsprop(settings, gradient, tensors, range);
    case Optimizer::kLamb:
      return RunLambStates(settings, gradient, tensors, range);
  }
}

TrustNorms TrustNormsOf(const ParameterSettings& settings,
                        const UpdateTensors& tensors, ElementRange range) {
  const Moments moments(settings, *tensors.new_step);
  const auto weight_decay = static_cast<float>(settings.weight_decay);
  TrustNorms norms;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const double value = tensors.value[i];
    const double update = moments.Update(tensors, i, weight_decay);
    norms.value += value * value;
    norms.update += update * update;
  }
  return norms;
}

void RunTrustedStep(const ParameterSettings& settings, const TrustNorms& norms,
                    const UpdateTensors& tensors, ElementRange range) {
  const Moments moments(settings, *tensors.new_step);
  const auto weight_decay = static_cast<float>(settings.weight_decay);
  double ratio = 1;
  if (settings.weight_decay != 0 && norms.value > 0 && norms.update > 0) {
    ratio = std::sqrt(norms.value) / std::sqrt(norms.update);
  }
  const auto rate = static_cast<float>(-settings.learning_rate * ratio);
  for (int64_t i = range.begin; i < range.end; ++i) {
    tensors.new_value[i] =
        tensors.value[i] + rate * moments.Update(tensors, i, weight_decay);
  }
}

void RunAverage(double decay, const UpdateTensors& tensors,
                ElementRange range) {
  const float* const now =
      tensors.new_value == nullptr ? tensors.value : tensors.new_value;
  if (tensors.average == nullptr) {
    std::copy(now + range.begin, now + range.end,
              tensors.new_average + range.begin);
    return;
  }
  const auto weight = static_cast<float>(1 - decay);
  for (int64_t i = range.begin; i < range.end; ++i) {
    tensors.new_average[i] = Lerp(tensors.average[i], now[i], weight);
  }
}

}  // namespace convgrad
