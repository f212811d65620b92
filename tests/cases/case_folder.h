// `RunCaseFolder` runs the cases that others published and prints a table of
// the results. The cases aren't part of the repository: CONVGRAD_CASES names
// their folder.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "tests/cases/case_target.h"

namespace convgrad::testing_support {

using StartTarget =
    std::function<absl::StatusOr<std::unique_ptr<CaseTarget>>()>;

// Runs the cases that the command line's flags select: --tier, --files,
// --dtypes... Returns an exit status: 0 if all passed, or if there is no such
// folder. Requires: parsed flags.
int RunCaseFolder(const StartTarget& start);

}  // namespace convgrad::testing_support
