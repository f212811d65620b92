// Implements Validate, which checks everything that needs no input shapes.
#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/attribute_validation.h"
#include "backends/core/program/program.h"
#include "backends/core/program/program_declarations.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Maximum number of operands of all steps. The time of planning grows with the
// square of this number. Networks of kMaxProgramSteps have fewer operands.
constexpr size_t kMaxProgramOperands = 50'000;

// Visits the steps in order, and tracks the names defined so far.
class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {}

  absl::Status Check() {
    RETURN_IF_ERROR(CheckDeclarations());
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const ProgramStep& step = program_.steps[i];
      const std::string path = StepPath(program_, i);
      RETURN_IF_ERROR(CheckAttributes(step, path));
      RETURN_IF_ERROR(CheckOperands(step, path));
      const OperatorSpec& spec = SpecOf(step.op);
      if (spec.check_operands != nullptr) {
        RETURN_IF_ERROR(spec.check_operands(step, path));
      }
      NoteStatistics(step, path);
      RETURN_IF_ERROR(Declare(step.result, path + ".result"));
      values_.emplace(step.result,
                      spec.is_loss ? Kind::kLoss : Kind::kActivation);
    }
    RETURN_IF_ERROR(CheckUpdates());
    RETURN_IF_ERROR(CheckOutputs());
    return CheckNeeded();
  }

 private:
  enum class Kind { kActivation, kIndex, kLoss };

  absl::Status Declare(absl::string_view name, const std::string& field) {
    RETURN_IF_ERROR(CheckProgramName(name, field));
    if (names_.insert(name).second) return absl::OkStatus();
    return InvalidField(Reason::kDuplicate, field, name,
                        "a name that nothing else has");
  }

  absl::Status CheckDeclarations() {
    if (program_.steps.size() > kMaxProgramSteps) {
      return InvalidField(Reason::kLimitExceeded, "steps",
                          program_.steps.size(),
                          absl::StrCat("at most ", kMaxProgramSteps));
    }
    size_t operands = 0;
    for (const ProgramStep& step : program_.steps) {
      operands += step.operands.size();
    }
    if (operands > kMaxProgramOperands) {
      return InvalidField(Reason::kLimitExceeded, "steps",
                          absl::StrCat(operands, " operands"),
                          absl::StrCat("at most ", kMaxProgramOperands));
    }
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const ProgramInput& input = program_.inputs[i];
      RETURN_IF_ERROR(
          Declare(input.name, absl::StrCat("inputs[", i, "].name")));
      values_.emplace(input.name,
                      input.is_index ? Kind::kIndex : Kind::kActivation);
    }
    for (size_t i = 0; i < program_.parameters.size(); ++i) {
      const ProgramParameter& parameter = program_.parameters[i];
      const std::string path = absl::StrCat("parameters[", i, "]");
      RETURN_IF_ERROR(Declare(parameter.name, path + ".name"));
      RETURN_IF_ERROR(CheckParameter(
          parameter, absl::StrCat(path, " (", parameter.name, ")")));
      parameters_.emplace(parameter.name, &parameter);
    }
    return absl::OkStatus();
  }

  absl::Status CheckOperands(const ProgramStep& step, const std::string& path) {
    const OperatorSpec& spec = SpecOf(step.op);
    const size_t most = spec.operands.size();
    if (step.operands.size() > most && !spec.variadic) {
      return Malformed(path + ".operands", step.operands.size(),
                       absl::StrCat("at most ", most, " of ", spec.name));
    }
    for (size_t i = 0; i < std::max(most, step.operands.size()); ++i) {
      RETURN_IF_ERROR(
          CheckOperand(OperandSpecAt(spec, i), OperandAt(step, i), path));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOperand(const OperandSpec& operand, const std::string& name,
                            const std::string& path) {
    const std::string field = absl::StrCat(path, ".", operand.name);
    if (name.empty()) {
      if (operand.optional) return absl::OkStatus();
      return Missing(
          field, "none",
          operand.is_parameter() ? "a parameter" : "an input or a result");
    }
    const bool may_be_input =
        operand.may_be_value || operand.kind == OperandKind::kIndices;
    const bool is_value = may_be_input && values_.contains(name);
    return operand.is_parameter() && !is_value
               ? CheckParameterOperand(operand, name, field)
               : CheckValueOperand(operand, name, field);
  }

  absl::Status CheckParameterOperand(const OperandSpec& operand,
                                     const std::string& name,
                                     const std::string& field) {
    const auto found = parameters_.find(name);
    if (found == parameters_.end()) {
      return InvalidField(Reason::kNotFound, field, name, "a parameter");
    }
    const ProgramParameter& parameter = *found->second;
    const bool is_count = operand.kind == OperandKind::kCount;
    const bool is_i64 = is_count || operand.kind == OperandKind::kIndices;
    const size_t least = is_count ? 0 : operand.least_rank;
    const size_t most = is_count ? 0 : operand.most_rank;
    if (parameter.dims.size() < least || parameter.dims.size() > most ||
        (parameter.dtype == DataType::kI64) != is_i64) {
      return ShapeMismatch(
          field,
          absl::StrCat(name, ", ", NameOf(parameter.dtype), " ",
                       ToString(parameter.dims)),
          is_count
              ? "i64 []"
              : absl::StrCat(is_i64 ? "i64" : "f32", " of rank ", least,
                             least == most ? "" : absl::StrCat(" to ", most)));
    }
    const bool may_be_trainable = operand.kind == OperandKind::kParameter ||
                                  operand.kind == OperandKind::kWeight;
    if (!parameter.trainable || may_be_trainable) return absl::OkStatus();
    return InvalidField(Reason::kUnsupported, field,
                        absl::StrCat(name, ", trainable"), "a fixed parameter");
  }

  absl::Status CheckValueOperand(const OperandSpec& operand,
                                 const std::string& name,
                                 const std::string& field) {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      return InvalidField(Reason::kNotFound, field, name,
                          "an input or the result of an earlier step");
    }
    const bool is_index = operand.kind == OperandKind::kIndex ||
                          operand.kind == OperandKind::kIndices;
    const bool may_be_value = !is_index || operand.may_be_value;
    if (found->second == Kind::kIndex && is_index) return absl::OkStatus();
    if (found->second == Kind::kActivation && may_be_value) {
      return absl::OkStatus();
    }
    constexpr absl::string_view kKinds[] = {"an activation", "an index input",
                                            "a loss"};
    return InvalidField(
        Reason::kUnsupported, field,
        absl::StrCat(name, ", ", kKinds[static_cast<size_t>(found->second)]),
        absl::StrCat(may_be_value ? kKinds[0] : "",
                     may_be_value && is_index ? " or " : "",
                     is_index ? kKinds[1] : ""));
  }

  void NoteStatistics(const ProgramStep& step, const std::string& path) {
    auto& statistics = IsTraining(step) ? updated_ : read_;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const std::string& name = step.operands[i];
      const bool is_updated = OperandSpecAt(SpecOf(step.op), i).is_updated();
      if (is_updated && !name.empty()) statistics.emplace(name, path);
    }
  }

  absl::Status CheckUpdates() const {
    for (const auto& [name, path] : read_) {
      const auto update = updated_.find(name);
      if (update == updated_.end()) continue;
      return InvalidField(
          Reason::kUnsupported, path, absl::StrCat(name, ", as it was"),
          absl::StrCat("a statistic that ", update->second, " doesn't update"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutputs() const {
    if (program_.outputs.empty()) {
      return Missing("outputs", "none", "at least one");
    }
    absl::flat_hash_set<absl::string_view> results;
    for (const ProgramStep& step : program_.steps) results.insert(step.result);
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const std::string& output = program_.outputs[i];
      if (results.erase(output) == 1) continue;
      return InvalidField(Reason::kNotFound, absl::StrCat("outputs[", i, "]"),
                          output, "the result of a step, each once");
    }
    return absl::OkStatus();
  }

  // Walks backwards from the outputs.
  absl::Status CheckNeeded() const {
    absl::flat_hash_set<absl::string_view> needed(program_.outputs.begin(),
                                                  program_.outputs.end());
    const auto check = [&](const std::string& name, const std::string& path) {
      if (needed.contains(name)) return absl::OkStatus();
      return InvalidField(Reason::kUnsupported, path, name,
                          "a value that an output needs");
    };
    for (size_t i = program_.steps.size(); i-- > 0;) {
      const ProgramStep& step = program_.steps[i];
      RETURN_IF_ERROR(check(step.result, StepPath(program_, i)));
      needed.insert(step.operands.begin(), step.operands.end());
    }
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      RETURN_IF_ERROR(
          check(program_.inputs[i].name, absl::StrCat("inputs[", i, "]")));
    }
    for (size_t i = 0; i < program_.parameters.size(); ++i) {
      RETURN_IF_ERROR(check(program_.parameters[i].name,
                            absl::StrCat("parameters[", i, "]")));
    }
    return absl::OkStatus();
  }

  const Program& program_;
  absl::flat_hash_set<absl::string_view> names_;
  absl::flat_hash_map<absl::string_view, Kind> values_;
  absl::flat_hash_map<absl::string_view, const ProgramParameter*> parameters_;
  // Statistics that training steps update and others read, by name, with the
  // path of the first such step.
  std::map<std::string, std::string> updated_, read_;
};

}  // namespace

absl::Status Validate(const Program& program) {
  return Checker(program).Check();
}

}  // namespace convgrad
