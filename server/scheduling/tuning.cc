#include "server/scheduling/tuning.h"

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/status.h"
#include "server/scheduling/nominal_time.h"

namespace convgrad {

absl::StatusOr<std::vector<ConvProblem>> ParseProblems(absl::string_view text) {
  std::vector<ConvProblem> problems;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    ASSIGN_OR_RETURN(ConvProblem problem, Parse(line));
    RETURN_IF_ERROR(Validate(problem));
    problems.push_back(std::move(problem));
  }
  return problems;
}

absl::Status TuneProblem(const ConvProblem& problem, int threads,
                         const std::vector<RegisteredBackend>& backends) {
  const PlanOptions options = {
      .threads = threads,
      .deterministic = false,
      .timing_bytes = std::numeric_limits<int64_t>::max()};
  for (const RegisteredBackend& entry : backends) {
    if (!entry.backend.ok()) continue;
    for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
      for (Layout layout : {Layout::kNCX, Layout::kNXC}) {
        for (Direction direction :
             {Direction::kForward, Direction::kBackward}) {
          const ConvOperation operation =
              WholeOperation(problem, direction, dtype, layout);
          const Backend& backend = **entry.backend;
          if (!backend.CheckSupport(operation).ok()) continue;
          for (const ConvOperation& part :
               PlannedOperations(backend, operation, threads)) {
            RETURN_IF_ERROR(backend.MakePlan(part, options).status());
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace convgrad
