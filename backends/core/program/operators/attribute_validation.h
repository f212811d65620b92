// Checks a step's attributes against the row of its operator.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "backends/core/program/operators/program_step.h"

namespace convgrad {

// Checks names, kinds, words and ranges against the operator's table, that no
// attribute is missing, and the rules that tie attributes to each other. `path`
// names the step. Errors: kInvalidArgument naming attribute, found and
// expected.
absl::Status CheckAttributes(const ProgramStep& step, const std::string& path);

}  // namespace convgrad
