#include "backends/onednn/networks/schedule/network_forms.h"

#include <algorithm>

namespace convgrad::onednn {
namespace {

Form FormFor(FeatureAxis features) {
  return features == FeatureAxis::kLast ? Form::kRows : Form::kImage;
}

// Returns the features' axis of the first step that reads `name`.
FeatureAxis FirstUse(const convgrad::Program& program,
                     const std::string& name) {
  for (const ProgramStep& step : program.steps) {
    const bool reads = std::find(step.operands.begin(), step.operands.end(),
                                 name) != step.operands.end();
    if (reads) return SpecOf(step.op).features;
  }
  return FeatureAxis::kAny;
}

}  // namespace

std::map<std::string, Form> FormsOf(const convgrad::Program& program,
                                    const ProgramShapes& shapes) {
  std::map<std::string, Form> forms;
  const auto set = [&](const std::string& name, Form form) {
    const bool is_rows = shapes.dims.at(name).size() <= 2;
    forms[name] = is_rows ? Form::kRows : form;
  };
  for (const ProgramInput& input : program.inputs) {
    set(input.name, FormFor(FirstUse(program, input.name)));
  }
  for (const ProgramStep& step : program.steps) {
    const FeatureAxis features = SpecOf(step.op).features;
    const bool reads_image = std::any_of(
        step.operands.begin(), step.operands.end(), [&](const auto& name) {
          const auto form = forms.find(name);
          return form != forms.end() && form->second == Form::kImage;
        });
    const bool is_any = features == FeatureAxis::kAny;
    set(step.result, is_any && !reads_image ? Form::kRows : FormFor(features));
  }
  return forms;
}

}  // namespace convgrad::onednn
