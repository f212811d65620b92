// A `ProgramStep` is one operator call of a program. The functions below read
// its attributes and operands with their types.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/program/operators/operator_spec.h"

namespace convgrad {

// An attribute's value. `stride=2` and `stride=[2, 2]` are different values
// with the same meaning; both stay as they were written.
using AttributeValue = std::variant<bool, int64_t, double, std::string,
                                    std::vector<int64_t>, std::vector<double>>;

// One operator of a program.
struct ProgramStep {
  // The name of its result. Each name is assigned once, and differs from the
  // names of inputs and parameters.
  std::string result;
  Operator op = Operator::kRelu;
  // Names of parameters, inputs, or results of earlier steps, in the order of
  // the operator's operands. "" stands for an omitted optional operand.
  std::vector<std::string> operands;
  // The attributes that the program gives, by name. The others have the
  // operator's defaults.
  std::map<std::string, AttributeValue> attributes;

  friend bool operator==(const ProgramStep&, const ProgramStep&) = default;
};

// The following functions return an attribute of the step, or the operator's
// default if the step doesn't give it. Requires: the step belongs to a valid
// program.
bool BoolAttribute(const ProgramStep& step, absl::string_view name);
// 0 if the attribute has no default and isn't given.
int64_t IntAttribute(const ProgramStep& step, absl::string_view name);
// Returns 0 also if the attribute is a word.
double FloatAttribute(const ProgramStep& step, absl::string_view name);
// "" if the attribute is a number, as `padding` may be.
std::string WordAttribute(const ProgramStep& step, absl::string_view name);
// Repeats a single number for all `axes` axes. Empty if the attribute is a
// word, or has no default and isn't given.
std::vector<int64_t> IntsAttribute(const ProgramStep& step,
                                   absl::string_view name, size_t axes);
// Returns a single number as a list of one. Empty as above.
std::vector<double> FloatsAttribute(const ProgramStep& step,
                                    absl::string_view name);
// Returns the number or the numbers in `value`; none of a bool or a word.
std::vector<double> NumbersIn(const AttributeValue& value);

// The values of an operator's first two attributes of kind kFloat. If they
// aren't given and have no default, -Inf and Inf, i.e. no limits.
struct StepNumbers {
  double first, second;
};
StepNumbers NumbersOf(const ProgramStep& step);
// Returns whether the step gives the attribute.
bool HasAttribute(const ProgramStep& step, absl::string_view name);
// Returns whether the operator has an attribute `training` and the step sets
// it.
bool IsTraining(const ProgramStep& step);

// Returns the operand at `position`; "" if it is omitted.
const std::string& OperandAt(const ProgramStep& step, size_t position);
// Returns the row of the operand at `position`. A variadic operator's last row
// applies to all further positions.
const OperandSpec& OperandSpecAt(const OperatorSpec& spec, size_t position);

}  // namespace convgrad
