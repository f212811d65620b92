#include "tests/conformance/programs/program_update.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/logical_tensor.h"
#include "backends/core/optimizer/update_operation.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/optimizer_truth.h"
#include "tests/conformance/programs/running_error.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {
namespace {

// `StepMaker` makes random optimizers and settings; the same seed gives the
// same ones.
class StepMaker {
 public:
  explicit StepMaker(uint64_t seed) : random_(seed) {}

  OptimizerStep Make(size_t parameters) {
    OptimizerStep step;
    step.optimizer =
        OneOf({Optimizer::kSgd, Optimizer::kAdam, Optimizer::kAdamW,
               Optimizer::kRmsprop, Optimizer::kLamb});
    step.settings.gradient_scale = OneOf({1.0, 0.125, 0.3});
    step.settings.clip_value = OneOf({0.0, 0.0, 0.05});
    step.settings.ema_decay = OneOf({0.0, 0.9, 0.25});
    step.settings.clip_norm = OneOf({0.0, 0.0, 0.1, 1.0, 100.0});
    step.settings.skip_nonfinite = OneOf({0.0, 1.0});
    const bool has_momentum = OneOf({true, true, false});
    for (size_t i = 0; i < parameters; ++i) {
      step.own.push_back(MakeOwn(has_momentum));
    }
    return step;
  }

 private:
  template <typename T>
  T OneOf(std::initializer_list<T> choices) {
    return choices.begin()[std::uniform_int_distribution<size_t>(
        0, choices.size() - 1)(random_)];
  }

  ParameterSettings MakeOwn(bool has_momentum) {
    ParameterSettings own;
    own.learning_rate = OneOf({0.1, 0.01, 1e-3});
    own.weight_decay = OneOf({0.0, 0.01, 0.3});
    if (has_momentum) {
      own.momentum = OneOf({0.9, 0.5});
      own.nesterov = OneOf({0.0, 1.0});
      // PyTorch allows no dampening with Nesterov's momentum.
      own.dampening = own.nesterov != 0 ? 0 : OneOf({0.0, 0.3});
    }
    own.beta1 = OneOf({0.9, 0.5});
    own.beta2 = OneOf({0.999, 0.9});
    own.epsilon = OneOf({1e-8, 1e-3});
    own.maximize = OneOf({0.0, 0.0, 1.0});
    own.alpha = OneOf({0.99, 0.25});
    own.centered = OneOf({0.0, 1.0});
    return own;
  }

  std::mt19937_64 random_;
};

UpdateOperation OperationOf(const OptimizerStep& step,
                            const std::vector<SteppedParameter>& parameters) {
  std::vector<UpdatedParameter> updated;
  for (size_t i = 0; i < parameters.size(); ++i) {
    UpdatedParameter each;
    each.dims = parameters[i].dims;
    each.states = KeptStates(step, i);
    each.has_states = each.states != 0 && parameters[i].steps > 0;
    each.is_averaged = step.settings.ema_decay != 0;
    each.has_average = !parameters[i].average.empty();
    updated.push_back(std::move(each));
  }
  return UpdateOperation(step.optimizer, std::move(updated));
}

GuardedBuffer SettingsBytes(const OptimizerStep& step) {
  const size_t own = step.own.size() * sizeof(ParameterSettings);
  GuardedBuffer buffer(static_cast<int64_t>(sizeof(UpdateSettings) + own));
  std::memcpy(buffer.data(), &step.settings, sizeof(UpdateSettings));
  std::memcpy(buffer.data() + sizeof(UpdateSettings), step.own.data(), own);
  return buffer;
}

// Returns the operands. Missing operands are empty buffers.
std::vector<GuardedBuffer> OperandsOf(
    const UpdateOperation& operation, const OptimizerStep& step,
    const std::vector<SteppedParameter>& parameters) {
  std::vector<GuardedBuffer> operands;
  operands.push_back(SettingsBytes(step));
  const TensorUses uses = operation.OperandUses();
  const auto add = [&](const Values& values) {
    const TensorDescriptor* tensor = uses[operands.size()].tensor;
    operands.emplace_back(tensor == nullptr ? 0 : *ByteSize(*tensor));
    if (tensor != nullptr) {
      StoreLogical(*tensor, values, operands.back().data());
    }
  };
  for (const SteppedParameter& parameter : parameters) {
    add(parameter.value);
    add(parameter.gradient);
    const auto names = StateNames(step.optimizer);
    for (size_t s = 0; s < names.size(); ++s) {
      add(names[s] == "step" ? Values{static_cast<double>(parameter.steps)}
                             : parameter.states[s]);
    }
    add(parameter.average);
  }
  return operands;
}

// Returns the position of each parameter's new value among the results, and of
// its gradient among the operands.
std::vector<std::pair<size_t, size_t>> ValuesOverGradients(
    const UpdateOperation& operation) {
  std::vector<std::pair<size_t, size_t>> positions;
  const size_t states = StateNames(operation.optimizer()).size();
  size_t result = 0;
  size_t operand = 1;
  for (const UpdatedParameter& parameter : operation.parameters()) {
    positions.emplace_back(result, operand + 1);
    result += 1 + std::bitset<kMaxStates>(parameter.states).count() +
              (parameter.is_averaged ? 1 : 0);
    operand += 2 + states + 1;
  }
  return positions;
}

// Runs the plan. The results at the positions in `over` take the memory of
// operands.
std::vector<GuardedBuffer> RunOnce(
    const Plan& plan, const UpdateOperation& operation, uint8_t fill,
    std::vector<GuardedBuffer>* operands,
    const std::vector<std::pair<size_t, size_t>>& over = {}) {
  RunBuffers buffers(operands->size());
  const TensorUses uses = operation.OperandUses();
  for (size_t i = 0; i < operands->size(); ++i) {
    buffers.operands[i] =
        uses[i].tensor == nullptr ? nullptr : (*operands)[i].data();
  }
  std::vector<GuardedBuffer> results;
  for (const TensorUse& use : operation.ResultUses()) {
    results.emplace_back(*ByteSize(*use.tensor), fill);
    buffers.results.push_back(results.back().data());
  }
  for (const auto& [result, operand] : over) {
    buffers.results[result] = (*operands)[operand].data();
  }
  const auto times = plan.Run(buffers);
  EXPECT_TRUE(times.ok()) << times.status();
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].GuardsIntact()) << "wrote beyond result " << i;
  }
  for (const auto& [result, operand] : over) {
    const GuardedBuffer& written = (*operands)[operand];
    EXPECT_TRUE(written.GuardsIntact()) << "wrote beyond operand " << operand;
    std::memcpy(results[result].data(), written.data(), written.size());
  }
  return results;
}

// The result of a step. Gradients don't change.
struct Outcome {
  std::vector<SteppedParameter> parameters;
  double norm = 0;
  double skipped = 0;
};

Outcome Read(const UpdateOperation& operation, const OptimizerStep& step,
             const std::vector<GuardedBuffer>& results,
             std::vector<SteppedParameter> parameters) {
  const TensorUses uses = operation.ResultUses();
  size_t next = 0;
  const auto read = [&] {
    const size_t i = next++;
    return LoadLogical(*uses[i].tensor, results[i].data());
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].value = read();
    const StateSet states = KeptStates(step, i);
    const auto names = StateNames(step.optimizer);
    for (size_t s = 0; s < names.size(); ++s) {
      if ((states >> s & 1) == 0) continue;
      Values values = read();
      if (names[s] == "step") {
        parameters[i].steps = static_cast<int64_t>(values[0]);
      } else {
        parameters[i].states[s] = std::move(values);
      }
    }
    if (step.optimizer == Optimizer::kSgd && states != 0) {
      parameters[i].steps = 1;
    }
    if (step.settings.ema_decay != 0) parameters[i].average = read();
  }
  const Values summary = read();
  return {std::move(parameters), summary[0], summary[1]};
}

Outcome Run(const Backend& backend, const OptimizerStep& step,
            const std::vector<SteppedParameter>& parameters) {
  const UpdateOperation operation = OperationOf(step, parameters);
  const auto plan = backend.MakePlan(operation, PlanOptions());
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {parameters, 0, 0};
  auto operands = OperandsOf(operation, step, parameters);
  std::vector<std::vector<std::byte>> before;
  for (const GuardedBuffer& operand : operands) {
    before.push_back(operand.Bytes());
  }
  const auto results = RunOnce(**plan, operation, 0xff, &operands);
  const auto again = RunOnce(**plan, operation, 0, &operands);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].Bytes() == again[i].Bytes())
        << "two runs differ in result " << i;
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    EXPECT_TRUE(operands[i].GuardsIntact() && operands[i].Bytes() == before[i])
        << "wrote to operand " << i;
  }
  const auto over =
      RunOnce(**plan, operation, 0, &operands, ValuesOverGradients(operation));
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].Bytes() == over[i].Bytes())
        << "result " << i << " differs over the gradients' memory";
  }
  return Read(operation, step, results, parameters);
}

void ExpectWithin(double got, Bounded expected, const std::string& what) {
  // If a gradient and its weight decay cancel, Adam divides rounding errors.
  ASSERT_FALSE(std::isnan(expected.error)) << what << ": no bound";
  EXPECT_TRUE(std::isfinite(got)) << what;
  EXPECT_LE(std::fabs(got - expected.value), expected.error)
      << what << ": " << got << ", expected " << expected.value;
}

// Expects the average of the new values, which are f32.
void ExpectAverage(double decay, const SteppedParameter& before,
                   const SteppedParameter& now, const std::string& what) {
  for (size_t at = 0; at < now.average.size(); ++at) {
    if (before.average.empty()) {
      EXPECT_EQ(now.average[at], now.value[at]) << what;
      continue;
    }
    const Bounded old = Exact(before.average[at]), value = Exact(now.value[at]);
    ExpectWithin(now.average[at],
                 1 - decay < 0.5 ? old + Constant(1 - decay) * (value - old)
                                 : value - Constant(decay) * (value - old),
                 absl::StrCat(what, " average ", at));
  }
}

void ExpectStep(const OptimizerStep& step,
                const std::vector<SteppedParameter>& before,
                const Outcome& after) {
  const double norm = GradientNorm(before, step.settings);
  const double factor = ClipFactor(step.settings, norm);
  const bool has_norm =
      step.settings.clip_norm != 0 || step.settings.skip_nonfinite != 0;
  // A limit is rounded to f32, and the limited elements with it.
  const double expected_norm = has_norm ? norm : 0;
  ExpectWithin(after.norm,
               RoundedOnce(expected_norm, kF32Roundoff * expected_norm),
               "gradient norm");
  EXPECT_EQ(after.skipped, 0);
  for (size_t i = 0; i < before.size(); ++i) {
    const SteppedParameter& now = after.parameters[i];
    const std::vector<SteppedElement> expected =
        ParameterAfter(step, i, factor, before[i]);
    for (size_t at = 0; at < expected.size(); ++at) {
      const std::string what = absl::StrCat(now.name, "[", at, "]");
      ExpectWithin(now.value[at], expected[at].value, what);
      for (size_t s = 0; s < kMaxStates; ++s) {
        if (now.states[s].empty()) continue;
        ExpectWithin(now.states[s][at], expected[at].states[s],
                     absl::StrCat(what, ", state ", s));
      }
    }
    ExpectAverage(step.settings.ema_decay, before[i], now, now.name);
    if (step.optimizer != Optimizer::kSgd) {
      EXPECT_EQ(now.steps, before[i].steps + 1);
    }
  }
}

// Expects that `gradient` in the place of one changes nothing, because it isn't
// finite.
void ExpectSkipped(const Backend& backend, OptimizerStep step, double gradient,
                   std::vector<SteppedParameter> before) {
  step.settings.skip_nonfinite = 1;
  before.back().gradient.back() = gradient;
  const Outcome after = Run(backend, step, before);
  EXPECT_EQ(after.skipped, 1);
  for (size_t i = 0; i < before.size(); ++i) {
    const SteppedParameter& now = after.parameters[i];
    EXPECT_EQ(now.value, before[i].value) << now.name;
    for (size_t s = 0; s < kMaxStates; ++s) {
      EXPECT_EQ(now.states[s], before[i].states[s]) << now.name;
    }
    EXPECT_EQ(now.average, before[i].average) << now.name;
    EXPECT_EQ(now.steps, before[i].steps) << now.name;
  }
}

}  // namespace

void CheckUpdate(const Backend& backend, const Program& program,
                 const NamedValues& values, const NamedValues& gradients,
                 uint64_t seed) {
  std::vector<SteppedParameter> parameters;
  for (const ProgramParameter& each : program.parameters) {
    if (!each.trainable) continue;
    SteppedParameter parameter;
    parameter.name = each.name;
    parameter.dims = each.dims;
    parameter.value = values.at(each.name);
    parameter.gradient = gradients.at(each.name);
    parameters.push_back(std::move(parameter));
  }
  if (parameters.empty()) return;
  const OptimizerStep step = StepMaker(seed).Make(parameters.size());
  SCOPED_TRACE(OperationOf(step, parameters).text());
  for (int turn = 0; turn < 2; ++turn) {
    Outcome after = Run(backend, step, parameters);
    ExpectStep(step, parameters, after);
    parameters = std::move(after.parameters);
  }
  ExpectSkipped(backend, step, std::numeric_limits<double>::infinity(),
                parameters);
  OptimizerStep overflowing = step;
  overflowing.settings.gradient_scale = 2;
  overflowing.settings.clip_norm = overflowing.settings.clip_value = 0;
  ExpectSkipped(backend, overflowing, std::numeric_limits<float>::max(),
                parameters);
}

}  // namespace convgrad::testing_support
