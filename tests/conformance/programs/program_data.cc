#include "tests/conformance/programs/program_data.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "backends/core/program/program_shapes.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {
namespace {

using Fill = std::function<Values(int64_t count, uint64_t seed)>;

// Returns `count` targets of the cross entropy that reads `name`: classes, and
// sometimes the ignored index. The first target is never ignored. If none reads
// it, returns any numbers.
Values Targets(const ProgramCase& given, const ProgramShapes& shapes,
               const std::string& name, int64_t count, uint64_t seed) {
  const auto reads = [&](const ProgramStep& step) {
    return step.op == Operator::kCrossEntropy && step.operands[1] == name;
  };
  const auto step = std::find_if(given.program->steps.begin(),
                                 given.program->steps.end(), reads);
  if (step == given.program->steps.end()) {
    return RealFill(count, seed, DataType::kF32);
  }
  const int64_t classes = shapes.dims.at(step->operands[0])[1];
  const int64_t ignored = IntAttribute(*step, "ignore_index");
  Values values = RealFill(count, seed, DataType::kF32);
  for (double& value : values) {
    const auto drawn = static_cast<int64_t>(std::fabs(value) * 1000);
    value = static_cast<double>(drawn % 7 == 0 ? ignored : drawn % classes);
  }
  values[0] = static_cast<double>(classes - 1);
  return values;
}

// Makes statistics, weights of losses and indices out of `program`'s
// parameters and index inputs.
void FixOperands(const Program& program, const ProgramShapes& shapes,
                 NamedValues* values) {
  for (const ProgramStep& step : program.steps) {
    const bool is_norm = step.op == Operator::kBatchNorm;
    const std::string& positive =
        OperandAt(step, is_norm ? 4 : 2);  // running_var, or a loss's weight
    const bool is_weighted = step.op == Operator::kCrossEntropy;
    if (step.op == Operator::kIndexSelect) {
      const StepDims dims(step, shapes);
      const int64_t extent = dims.At(0)[*dims.Axis("axis")];
      for (double& value : values->at(step.operands[1])) {
        value = static_cast<double>(
            static_cast<int64_t>(std::fabs(value) * 1000) % extent);
      }
    }
    if ((is_norm || is_weighted) && !positive.empty()) {
      for (double& value : values->at(positive)) value = 0.5 + std::fabs(value);
    }
    if (is_norm && !OperandAt(step, 5).empty()) {
      values->at(OperandAt(step, 5)) = {3};  // batches so far
    }
  }
}

ProgramData Filled(const ProgramCase& given, uint64_t seed, const Fill& fill) {
  const Program& program = *given.program;
  const ProgramShapes shapes = *InferShapes(program, given.inputs);
  ProgramData data;
  for (const ProgramInput& input : program.inputs) {
    const int64_t count = CountOf(shapes.dims.at(input.name));
    data.values[input.name] =
        input.is_index ? Targets(given, shapes, input.name, count, ++seed)
                       : fill(count, ++seed);
  }
  for (const ProgramParameter& parameter : program.parameters) {
    data.values[parameter.name] = fill(CountOf(parameter.dims), ++seed);
  }
  FixOperands(program, shapes, &data.values);
  for (const std::string& output : program.outputs) {
    const Dims& dims = shapes.dims.at(output);
    data.output_gradients[output] =
        dims.empty() ? Values{1} : fill(CountOf(dims), ++seed);
  }
  return data;
}

}  // namespace

ProgramData RealProgramData(const ProgramCase& given, uint64_t seed) {
  return Filled(given, seed * 1000, [](int64_t count, uint64_t each) {
    return RealFill(count, each, DataType::kBF16);
  });
}

ProgramData IntegerProgramData(const ProgramCase& given, uint64_t seed) {
  return Filled(given, seed * 1000, [](int64_t count, uint64_t each) {
    Values values = RealFill(count, each, DataType::kF32);
    for (double& value : values) value = std::floor(value * 2) + 1;
    return values;
  });
}

}  // namespace convgrad::testing_support
