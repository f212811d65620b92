#include "backends/reference/exact_program.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "backends/core/status.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

bool IsWeight(const ProgramStep& step, size_t position) {
  const OperandSpec& spec = OperandSpecAt(SpecOf(step.op), position);
  return spec.kind == OperandKind::kWeight;
}

// Returns the kWeight parameters, written in the compute dtype.
NamedValues WrittenWeights(const Program& program, WriteFunction write,
                           const NamedValues& values) {
  NamedValues weights;
  for (const ProgramStep& step : program.steps) {
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const std::string& name = step.operands[i];
      if (name.empty() || !IsWeight(step, i)) continue;
      if (FindParameter(program, name) == nullptr) continue;
      const auto [place, is_new] = weights.emplace(name, values.at(name));
      if (is_new) write(Precision::kOperand, &place->second);
    }
  }
  return weights;
}

// The state that the steps of one evaluation share.
struct Evaluation {
  const ProgramOperation& operation;
  DropoutSeed seed;
  WriteFunction write;
  const NamedValues& values;
  NamedValues weights;

  StepData DataOf(size_t index) const {
    const ProgramStep& step = operation.program().steps[index];
    StepData data{.step = &step,
                  .index = index,
                  .shapes = &operation.shapes(),
                  .seed = seed,
                  .operands = {},
                  .result = {},
                  .wanted = {},
                  .write = &write};
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const std::string& name = step.operands[i];
      data.operands.emplace_back();
      if (name.empty()) continue;
      const auto weight = weights.find(name);
      const bool is_written = IsWeight(step, i) && weight != weights.end();
      data.operands.back() = is_written ? weight->second : values.at(name);
    }
    return data;
  }
};

void UpdateStatistics(const StepData& data, StepGradients updated,
                      WriteFunction write, NamedValues* values) {
  for (size_t i = 0; i < updated.size(); ++i) {
    if (updated[i].empty()) continue;
    const std::string& name = data.step->operands[i];
    const bool is_count = data.shapes->dims.at(name).empty();
    if (!is_count) write(Precision::kF32, &updated[i]);
    (*values)[name] = std::move(updated[i]);
  }
}

// Returns the names whose gradients are needed for a requested gradient.
absl::flat_hash_set<std::string> NamesOnTheWay(
    const ProgramOperation& operation) {
  absl::flat_hash_set<std::string> names;
  ForEachGradient(operation, [&](const std::string& name, Precision) {
    names.insert(name);
  });
  for (const ProgramStep& step : operation.program().steps) {
    if (step.op == Operator::kDetach) continue;
    const bool leads = std::any_of(
        step.operands.begin(), step.operands.end(),
        [&](const std::string& name) { return names.contains(name); });
    if (leads) names.insert(step.result);
  }
  return names;
}

void AddGradients(const StepData& data, const StepGradients& added,
                  NamedValues* gradients) {
  for (size_t i = 0; i < added.size(); ++i) {
    if (!data.wanted[i]) continue;
    Values& sum = (*gradients)[data.step->operands[i]];
    sum.resize(added[i].size());
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += added[i][j];
  }
}

}  // namespace

void ForEachGradient(
    const ProgramOperation& operation,
    absl::FunctionRef<void(const std::string&, Precision)> visit) {
  const ProgramRequest& request = operation.request();
  const Program& program = operation.program();
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (!request.input_gradients[i]) continue;
    visit(program.inputs[i].name, Precision::kCompute);
  }
  for (const ProgramParameter& parameter : program.parameters) {
    const bool is_wanted = parameter.trainable && request.parameter_gradients;
    if (is_wanted) visit(parameter.name, Precision::kF32);
  }
}

absl::Status ExactForward(const ProgramOperation& operation, DropoutSeed seed,
                          WriteFunction write, NamedValues* values) {
  const Program& program = operation.program();
  for (const ProgramInput& input : program.inputs) {
    if (!input.is_index) write(Precision::kOperand, &values->at(input.name));
  }
  const Evaluation evaluation{operation, seed, write, *values,
                              WrittenWeights(program, write, *values)};
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    const StepData data = evaluation.DataOf(i);
    const ExactOperator& exact = ExactOf(step.op);
    if (exact.check != nullptr) RETURN_IF_ERROR(exact.check(data));
    Values result = exact.forward(data);
    const bool is_loss = SpecOf(step.op).is_loss;
    write(is_loss ? Precision::kF32 : Precision::kCompute, &result);
    if (exact.update != nullptr && IsTraining(step)) {
      UpdateStatistics(data, exact.update(data), write, values);
    }
    (*values)[step.result] = std::move(result);
  }
  return absl::OkStatus();
}

void ExactBackward(const ProgramOperation& operation, DropoutSeed seed,
                   WriteFunction write, const NamedValues& values,
                   NamedValues* gradients) {
  const Program& program = operation.program();
  const auto names = NamesOnTheWay(operation);
  const Evaluation evaluation{operation, seed, write, values,
                              WrittenWeights(program, write, values)};
  for (size_t i = program.steps.size(); i-- > 0;) {
    const ProgramStep& step = program.steps[i];
    const auto gradient = gradients->find(step.result);
    if (gradient == gradients->end() || !names.contains(step.result)) continue;
    if (!SpecOf(step.op).is_loss) write(Precision::kCompute, &gradient->second);
    StepData data = evaluation.DataOf(i);
    data.result = values.at(step.result);
    for (const std::string& name : step.operands) {
      data.wanted.push_back(names.contains(name));
    }
    AddGradients(data, ExactOf(step.op).backward(data, gradient->second),
                 gradients);
  }
  ForEachGradient(operation, [&](const std::string& name, Precision precision) {
    Values& gradient = (*gradients)[name];
    gradient.resize(CountOf(operation.shapes().dims.at(name)));
    write(precision, &gradient);
  });
}

}  // namespace convgrad
