// The plan file: what a tuning run found out, one "BACKEND: WHAT = CHOICE" a
// line, and first what it was timed on (plan_origin.h). Empty lines and those
// that begin with # don't count.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/registry.h"
#include "server/scheduling/plan_origin.h"

namespace convgrad {

struct PlanFile {
  // Nullopt: the file doesn't say.
  std::optional<PlanOrigin> origin;
  // By the backend's name, in the form of Backend::tuning().
  std::map<std::string, std::string> tunings;
};

// Errors: kInvalidArgument naming a line that isn't of the form above.
absl::StatusOr<PlanFile> ParsePlanFile(absl::string_view text);

// Has the backends follow the file. Lines of backends that aren't there are
// skipped: one file may serve machines of several kinds.
// Errors: kInvalidArgument naming a line that its backend can't follow; lines
// before it may count then.
absl::Status LoadPlanFile(const PlanFile& file,
                          const std::vector<RegisteredBackend>& backends);

// Returns the lines of what the backends have timed.
std::string PlanLinesOf(const std::vector<RegisteredBackend>& backends);

}  // namespace convgrad
