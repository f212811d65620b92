// Checks a program's declarations: the names of its values, and the dims and
// dtypes of its parameters.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/core/program/program.h"

namespace convgrad {

// Checks the name of a value or a parameter (see Validate). `field` names it.
// Errors: kInvalidArgument, reason OUT_OF_RANGE or MALFORMED.
absl::Status CheckProgramName(absl::string_view name, absl::string_view field);

// Checks dims and dtype, not the name. `path` names the parameter.
// Errors: kInvalidArgument.
absl::Status CheckParameter(const ProgramParameter& parameter,
                            const std::string& path);

}  // namespace convgrad
