#include "backends/core/program/program.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "backends/core/program/attribute_text.h"

namespace convgrad {
namespace {

// Positions of batch_norm's statistics.
constexpr size_t kFirstStatistic = 3;

// Returns the attribute as the step or the operator's table gives it.
std::optional<AttributeValue> ValueOf(const ProgramStep& step,
                                      absl::string_view name) {
  const auto given = step.attributes.find(std::string(name));
  if (given != step.attributes.end()) return given->second;
  for (const AttributeSpec& spec : SpecOf(step.op).attributes) {
    if (spec.name == name) return ParseAttribute(spec.default_text);
  }
  return std::nullopt;
}

// Returns `T` out of `value`, which may be absent or something else.
template <typename T>
std::optional<T> Get(const std::optional<AttributeValue>& value) {
  if (!value || !std::holds_alternative<T>(*value)) return std::nullopt;
  return std::get<T>(*value);
}

}  // namespace

TensorDescriptor ParameterDescriptor(const ProgramParameter& parameter) {
  TensorDescriptor descriptor;
  descriptor.dtype = parameter.dtype;
  descriptor.dims = parameter.dims;
  return descriptor;
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

bool BoolAttribute(const ProgramStep& step, absl::string_view name) {
  return Get<bool>(ValueOf(step, name)).value_or(false);
}

int64_t IntAttribute(const ProgramStep& step, absl::string_view name) {
  return Get<int64_t>(ValueOf(step, name)).value_or(0);
}

double FloatAttribute(const ProgramStep& step, absl::string_view name) {
  const auto value = ValueOf(step, name);
  if (const auto integer = Get<int64_t>(value)) {
    return static_cast<double>(*integer);
  }
  return Get<double>(value).value_or(0);
}

std::string WordAttribute(const ProgramStep& step, absl::string_view name) {
  return Get<std::string>(ValueOf(step, name)).value_or("");
}

std::vector<int64_t> IntsAttribute(const ProgramStep& step,
                                   absl::string_view name, size_t axes) {
  const auto value = ValueOf(step, name);
  if (const auto number = Get<int64_t>(value)) {
    return std::vector<int64_t>(axes, *number);
  }
  return Get<std::vector<int64_t>>(value).value_or(std::vector<int64_t>());
}

std::vector<double> FloatsAttribute(const ProgramStep& step,
                                    absl::string_view name) {
  const auto value = ValueOf(step, name);
  if (const auto integers = Get<std::vector<int64_t>>(value)) {
    return {integers->begin(), integers->end()};
  }
  if (const auto numbers = Get<std::vector<double>>(value)) return *numbers;
  if (Get<int64_t>(value) || Get<double>(value)) {
    return {FloatAttribute(step, name)};
  }
  return {};
}

bool HasAttribute(const ProgramStep& step, absl::string_view name) {
  return step.attributes.contains(std::string(name));
}

const std::string& OperandAt(const ProgramStep& step, size_t position) {
  static const auto& none = *new std::string;
  return position < step.operands.size() ? step.operands[position] : none;
}

std::vector<size_t> UpdatedStatistics(const Program& program) {
  std::set<std::string> names;
  for (const ProgramStep& step : program.steps) {
    if (step.op != Operator::kBatchNorm || !BoolAttribute(step, "training")) {
      continue;
    }
    for (size_t i = kFirstStatistic; i < step.operands.size(); ++i) {
      names.insert(step.operands[i]);
    }
  }
  std::vector<size_t> indices;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    if (names.contains(program.parameters[i].name)) indices.push_back(i);
  }
  return indices;
}

}  // namespace convgrad
