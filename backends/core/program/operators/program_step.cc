#include "backends/core/program/operators/program_step.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "backends/core/program/operators/attribute_text.h"
#include "backends/core/program/operators/operator_table.h"

namespace convgrad {
namespace {

// Returns the step's attribute, or the default in the operator's table.
std::optional<AttributeValue> ValueOf(const ProgramStep& step,
                                      absl::string_view name) {
  const auto given = step.attributes.find(std::string(name));
  if (given != step.attributes.end()) return given->second;
  for (const AttributeSpec& spec : SpecOf(step.op).attributes) {
    if (spec.name == name) return ParseAttribute(spec.default_text);
  }
  return std::nullopt;
}

// Returns the `T` in `value`, which may be absent or have another type.
template <typename T>
std::optional<T> Get(const std::optional<AttributeValue>& value) {
  if (!value || !std::holds_alternative<T>(*value)) return std::nullopt;
  return std::get<T>(*value);
}

}  // namespace

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
  return value ? NumbersIn(*value) : std::vector<double>();
}

std::vector<double> NumbersIn(const AttributeValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return {static_cast<double>(*integer)};
  }
  if (const auto* number = std::get_if<double>(&value)) return {*number};
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    return {integers->begin(), integers->end()};
  }
  const auto* numbers = std::get_if<std::vector<double>>(&value);
  return numbers == nullptr ? std::vector<double>() : *numbers;
}

StepNumbers NumbersOf(const ProgramStep& step) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::array<double, 2> numbers = {-kInf, kInf};
  size_t next = 0;
  for (const AttributeSpec& spec : SpecOf(step.op).attributes) {
    if (spec.kind != AttributeKind::kFloat || next == numbers.size()) continue;
    const bool is_there =
        HasAttribute(step, spec.name) || !spec.default_text.empty();
    if (is_there) numbers[next] = FloatAttribute(step, spec.name);
    ++next;
  }
  return {numbers[0], numbers[1]};
}

bool HasAttribute(const ProgramStep& step, absl::string_view name) {
  return step.attributes.contains(std::string(name));
}

bool IsTraining(const ProgramStep& step) {
  return BoolAttribute(step, "training");
}

const std::string& OperandAt(const ProgramStep& step, size_t position) {
  static const auto& none = *new std::string;
  return position < step.operands.size() ? step.operands[position] : none;
}

const OperandSpec& OperandSpecAt(const OperatorSpec& spec, size_t position) {
  return spec.operands[std::min(position, spec.operands.size() - 1)];
}

}  // namespace convgrad
