// Runs the cases that others published and prints what came of them as a table.
// They aren't part of the repository: CONVGRAD_CASES names their folder.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "tests/cases/case_target.h"

namespace convgrad::testing_support {

using StartTarget =
    std::function<absl::StatusOr<std::unique_ptr<CaseTarget>>()>;

// Runs what the command line's flags ask for: --tier, --files, --dtypes...
// Returns an exit status: 0 if all passed, or there is no such folder.
// Requires: parsed flags.
int RunCaseFolder(const StartTarget& start);

}  // namespace convgrad::testing_support
