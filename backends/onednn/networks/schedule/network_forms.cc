#include "backends/onednn/networks/schedule/network_forms.h"

#include <algorithm>
#include <utility>

namespace convgrad::onednn {
namespace {

Form FormFor(FeatureAxis features) {
  return features == FeatureAxis::kLast ? Form::kRows : Form::kImage;
}

// Returns the first step that reads `name`; null if there is none.
const ProgramStep* FirstUser(const convgrad::Program& program,
                             const std::string& name) {
  for (const ProgramStep& step : program.steps) {
    const bool reads = std::find(step.operands.begin(), step.operands.end(),
                                 name) != step.operands.end();
    if (reads) return &step;
  }
  return nullptr;
}

FeatureAxis FirstUse(const convgrad::Program& program,
                     const std::string& name) {
  const ProgramStep* const user = FirstUser(program, name);
  return user == nullptr ? FeatureAxis::kAny : SpecOf(user->op).features;
}

// The new position of an image's channels after a permute.
enum class Turn { kNone, kToLast, kToSecond };
Turn TurnOf(const ProgramStep& step) {
  if (step.op != Operator::kPermute) return Turn::kNone;
  const auto order = IntsAttribute(step, "dims", 1);
  const auto rank = std::ssize(order);
  bool is_to_last = rank > 2 && order[0] == 0 && order[rank - 1] == 1;
  bool is_to_second = rank > 2 && order[0] == 0 && order[1] == rank - 1;
  for (int64_t i = 1; i + 1 < rank; ++i) {
    is_to_last = is_to_last && order[i] == i + 1;
    is_to_second = is_to_second && order[i + 1] == i;
  }
  return is_to_last     ? Turn::kToLast
         : is_to_second ? Turn::kToSecond
                        : Turn::kNone;
}

// The forms of a program's values, step by step.
class Forms {
 public:
  Forms(const convgrad::Program& program, const ProgramShapes& shapes)
      : program_(program), shapes_(shapes) {
    for (const ProgramInput& input : program.inputs) {
      Set(input.name, FormFor(FirstUse(program, input.name)));
    }
    for (const ProgramStep& step : program.steps) {
      Set(step.result, FormOf(step));
    }
  }

  std::map<std::string, Form> Take() { return std::move(forms_); }

 private:
  void Set(const std::string& name, Form form) {
    const bool is_rows = shapes_.dims.at(name).size() <= 2;
    forms_[name] = is_rows ? Form::kRows : form;
  }

  bool Reads(const ProgramStep& step, Form form) const {
    return std::any_of(step.operands.begin(), step.operands.end(),
                       [&](const std::string& name) {
                         const auto found = forms_.find(name);
                         return found != forms_.end() && found->second == form;
                       });
  }

  Form FormOf(const ProgramStep& step) const {
    const OperatorSpec& spec = SpecOf(step.op);
    const FeatureAxis features = spec.features_of == nullptr
                                     ? spec.features
                                     : spec.features_of({step, shapes_});
    if (features == FeatureAxis::kAny) return FormOfElements(step, spec);
    if (step.op == Operator::kPermute) return FormOfPermute(step);
    const bool is_norm =
        step.op == Operator::kLayerNorm || step.op == Operator::kRmsNorm;
    if (is_norm && Reads(step, Form::kTurnedImage)) return FormOfNorm(step);
    return FormFor(features);
  }

  Form FormOfElements(const ProgramStep& step, const OperatorSpec& spec) const {
    if (Reads(step, Form::kImage)) return Form::kImage;
    const bool is_plain = spec.operands[0].name == "a" ||
                          (spec.infer == nullptr && !spec.is_random);
    return is_plain && Reads(step, Form::kTurnedImage) ? Form::kTurnedImage
                                                       : Form::kRows;
  }

  // Returns an image for rows if a later step needs an image.
  Form FormOfPermute(const ProgramStep& step) const {
    const Turn turn = TurnOf(step);
    if (turn == Turn::kToLast && Reads(step, Form::kImage)) {
      return Form::kTurnedImage;
    }
    if (turn != Turn::kToSecond) return Form::kRows;
    const bool is_image =
        Reads(step, Form::kTurnedImage) ||
        shapes_.dims.at(step.result).size() > 3 ||
        FirstUse(program_, step.result) == FeatureAxis::kSecond;
    return is_image ? Form::kImage : Form::kRows;
  }

  // Returns rows, unless a later permute turns them back into an image.
  Form FormOfNorm(const ProgramStep& step) const {
    const ProgramStep* const user = FirstUser(program_, step.result);
    const bool is_turned = user != nullptr &&
                           TurnOf(*user) == Turn::kToSecond &&
                           IntAttribute(step, "axes") == 1;
    return is_turned ? Form::kTurnedImage : Form::kRows;
  }

  const convgrad::Program& program_;
  const ProgramShapes& shapes_;
  std::map<std::string, Form> forms_;
};

}  // namespace

std::map<std::string, Form> FormsOf(const convgrad::Program& program,
                                    const ProgramShapes& shapes) {
  return Forms(program, shapes).Take();
}

}  // namespace convgrad::onednn
