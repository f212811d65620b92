// Validate: everything of a program that needs no input shapes.
#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/core/program/attribute_validation.h"
#include "backends/core/program/program.h"
#include "backends/core/program/program_declarations.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Returns the ranks that a parameter may have as an operand of `op`.
std::pair<size_t, size_t> RanksOf(Operator op, const OperandSpec& operand) {
  if (operand.name == "num_batches_tracked") return {0, 0};
  if (operand.name != "weight") return {1, 1};
  if (op == Operator::kLinear) return {2, 2};
  const bool is_conv = op == Operator::kConv || op == Operator::kConvTranspose;
  return is_conv ? std::pair<size_t, size_t>{3, 5}
                 : std::pair<size_t, size_t>{1, 1};
}

// Whether a backward may be asked for its gradient.
bool MayBeTrainable(Operator op, const OperandSpec& operand) {
  return op != Operator::kCrossEntropy &&
         (operand.name == "weight" || operand.name == "bias");
}

// Walks the steps in order and knows what has a name so far.
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
      if (step.op == Operator::kBatchNorm) {
        RETURN_IF_ERROR(CheckStatistics(step, path));
      }
      RETURN_IF_ERROR(Declare(step.result, path + ".result"));
      const bool is_loss =
          step.op == Operator::kMse || step.op == Operator::kCrossEntropy;
      values_.emplace(step.result, is_loss ? Kind::kLoss : Kind::kActivation);
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
                          absl::StrCat(program_.steps.size()),
                          absl::StrCat("at most ", kMaxProgramSteps));
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
      return InvalidField(Reason::kMalformed, path + ".operands",
                          absl::StrCat(step.operands.size()),
                          absl::StrCat("at most ", most, " of ", spec.name));
    }
    for (size_t i = 0; i < std::max(most, step.operands.size()); ++i) {
      RETURN_IF_ERROR(CheckOperand(step, spec.operands[std::min(i, most - 1)],
                                   OperandAt(step, i), path));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOperand(const ProgramStep& step, const OperandSpec& operand,
                            const std::string& name, const std::string& path) {
    const std::string field = absl::StrCat(path, ".", operand.name);
    if (name.empty()) {
      if (operand.optional) return absl::OkStatus();
      return InvalidField(
          Reason::kMissing, field, "none",
          operand.is_parameter ? "a parameter" : "an input or a result");
    }
    return operand.is_parameter
               ? CheckParameterOperand(step.op, operand, name, field)
               : CheckValueOperand(step.op, operand, name, field);
  }

  absl::Status CheckParameterOperand(Operator op, const OperandSpec& operand,
                                     const std::string& name,
                                     const std::string& field) {
    const auto found = parameters_.find(name);
    if (found == parameters_.end()) {
      return InvalidField(Reason::kNotFound, field, name, "a parameter");
    }
    const ProgramParameter& parameter = *found->second;
    const auto [least, most] = RanksOf(op, operand);
    const bool is_count = operand.name == "num_batches_tracked";
    if (parameter.dims.size() < least || parameter.dims.size() > most ||
        (parameter.dtype == DataType::kI64) != is_count) {
      return InvalidField(
          Reason::kShapeMismatch, field,
          absl::StrCat(name, ", ", NameOf(parameter.dtype), " ",
                       ToString(absl::MakeConstSpan(parameter.dims))),
          is_count
              ? "i64 []"
              : absl::StrCat("f32 of rank ", least,
                             least == most ? "" : absl::StrCat(" to ", most)));
    }
    if (!parameter.trainable || MayBeTrainable(op, operand)) {
      return absl::OkStatus();
    }
    return InvalidField(Reason::kUnsupported, field,
                        absl::StrCat(name, ", trainable"), "a fixed parameter");
  }

  absl::Status CheckValueOperand(Operator op, const OperandSpec& operand,
                                 const std::string& name,
                                 const std::string& field) {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      return InvalidField(Reason::kNotFound, field, name,
                          "an input or the result of an earlier step");
    }
    const bool wants_index =
        op == Operator::kCrossEntropy && operand.name == "target";
    const Kind wanted = wants_index ? Kind::kIndex : Kind::kActivation;
    if (found->second == wanted) return absl::OkStatus();
    constexpr absl::string_view kKinds[] = {"an activation", "an index input",
                                            "a loss"};
    return InvalidField(
        Reason::kUnsupported, field,
        absl::StrCat(name, ", ", kKinds[static_cast<size_t>(found->second)]),
        kKinds[static_cast<size_t>(wanted)]);
  }

  // Of one batch_norm.
  absl::Status CheckStatistics(const ProgramStep& step,
                               const std::string& path) {
    const bool is_training = BoolAttribute(step, "training");
    const bool has_mean = !OperandAt(step, 3).empty();
    const bool has_count = !OperandAt(step, 5).empty();
    if (has_mean != !OperandAt(step, 4).empty() ||
        (!has_mean && (!is_training || has_count))) {
      return InvalidField(Reason::kMissing, path,
                          "running statistics that are incomplete",
                          is_training ? "running_mean and running_var, or none"
                                      : "running_mean and running_var");
    }
    const bool is_cumulative = WordAttribute(step, "momentum") == "none";
    if (is_training && is_cumulative && has_mean && !has_count) {
      return InvalidField(Reason::kMissing, path + ".num_batches_tracked",
                          "none", "a parameter, for momentum=none counts");
    }
    auto& statistics = is_training ? updated_ : read_;
    for (size_t i = 3; i < step.operands.size(); ++i) {
      if (!step.operands[i].empty()) {
        statistics.emplace(step.operands[i], path);
      }
    }
    return absl::OkStatus();
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
      return InvalidField(Reason::kMissing, "outputs", "none", "at least one");
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
