// The plan file: what a tuning run found out, one "BACKEND: WHAT = CHOICE" a
// line. Empty lines and those that begin with # don't count.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/registry.h"

namespace convgrad {

// Has the backends follow the file's text. Lines of backends that aren't there
// are skipped: one file may serve machines of several kinds.
// Errors: kInvalidArgument naming the line; the backends are in no defined
// state then.
absl::Status LoadPlanFile(absl::string_view text,
                          const std::vector<RegisteredBackend>& backends);

// Returns the text of what the backends have timed.
std::string PlanFileOf(const std::vector<RegisteredBackend>& backends);

}  // namespace convgrad
