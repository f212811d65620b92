// One step of a program, and typed access to what it has.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/program/operators/operator_spec.h"

namespace convgrad {

// An attribute's value: `stride=2` and `stride=[2, 2]` are different values of
// one meaning, which stay as they were written.
using AttributeValue = std::variant<bool, int64_t, double, std::string,
                                    std::vector<int64_t>, std::vector<double>>;

// One operator of a program.
struct ProgramStep {
  // The value that it makes. Each name is assigned once, and is no input's and
  // no parameter's.
  std::string result;
  Operator op = Operator::kRelu;
  // In the order of the operator's operands: parameters where it takes
  // parameters, else inputs and results of earlier steps; "" where an optional
  // one is left out.
  std::vector<std::string> operands;
  // Those that differ from the operator's defaults, or are given anyway.
  std::map<std::string, AttributeValue> attributes;

  friend bool operator==(const ProgramStep&, const ProgramStep&) = default;
};

// Typed access to a step's attributes, the operator's default where the step
// gives none. Requires: the step is one of a valid program.
bool BoolAttribute(const ProgramStep& step, absl::string_view name);
// 0 if the attribute has no default and isn't given.
int64_t IntAttribute(const ProgramStep& step, absl::string_view name);
// Likewise, and where it is a word.
double FloatAttribute(const ProgramStep& step, absl::string_view name);
// "" where it isn't a word, but a number, as `padding` may be.
std::string WordAttribute(const ProgramStep& step, absl::string_view name);
// One number stands for all `axes` axes. Empty if the attribute is a word, or
// has no default and isn't given.
std::vector<int64_t> IntsAttribute(const ProgramStep& step,
                                   absl::string_view name, size_t axes);
// One number is a list of one. Empty as above.
std::vector<double> FloatsAttribute(const ProgramStep& step,
                                    absl::string_view name);
// Returns whether the step gives the attribute.
bool HasAttribute(const ProgramStep& step, absl::string_view name);
// Returns whether the operator has an attribute `training` and the step sets
// it.
bool IsTraining(const ProgramStep& step);

// Returns the operand at `position`, "" where it is left out.
const std::string& OperandAt(const ProgramStep& step, size_t position);
// Returns what the operand at `position` is, of a variadic operator, too.
const OperandSpec& OperandSpecAt(const OperatorSpec& spec, size_t position);

}  // namespace convgrad
