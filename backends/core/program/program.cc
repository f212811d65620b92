#include "backends/core/program/program.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace convgrad {

TensorDescriptor ParameterDescriptor(const ProgramParameter& parameter) {
  return {parameter.dtype, Layout::kNCX, parameter.dims};
}

const ProgramParameter* FindParameter(const Program& program,
                                      absl::string_view name) {
  for (const ProgramParameter& parameter : program.parameters) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

std::string StepPath(const Program& program, size_t step) {
  return absl::StrCat("steps[", step, "] (", program.steps[step].result, ")");
}

std::vector<size_t> UpdatedStatistics(const Program& program) {
  std::set<std::string> names;
  for (const ProgramStep& step : program.steps) {
    if (!IsTraining(step)) continue;
    const OperatorSpec& spec = SpecOf(step.op);
    for (size_t i = 0; i < step.operands.size(); ++i) {
      if (OperandSpecAt(spec, i).is_updated()) names.insert(step.operands[i]);
    }
  }
  std::vector<size_t> indices;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    if (names.contains(program.parameters[i].name)) indices.push_back(i);
  }
  return indices;
}

}  // namespace convgrad
