#include "server/tuning_run.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/problem_list.h"
#include "backends/core/status.h"
#include "backends/registry.h"
#include "server/machine.h"
#include "server/plan_choice.h"
#include "server/scheduling/pin_thread.h"
#include "server/scheduling/plan_file.h"
#include "server/scheduling/tuning.h"
#include "server/server.h"
#include "server/text_file.h"
#include "spdlog/spdlog.h"

namespace convgrad {

absl::Status RunTuning(const Config& config, const std::string& problems_path) {
  RETURN_IF_ERROR(config.Validate());
  if (config.plan_file.empty() || IsAutomatic(config.plan_file)) {
    return InvalidField(Reason::kMissing, "--plan_file",
                        absl::StrCat("'", config.plan_file, "'"),
                        "the file that --tune shall write");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile("tune", problems_path));
  ASSIGN_OR_RETURN(const std::vector<ConvProblem> problems,
                   ParseProblems(text));
  const Machine machine = ReadMachine();
  if (config.pin_workers) {
    PinThisThread(
        CoreSets(machine, config.workers, config.threads_per_worker)[0]);
  }
  ASSIGN_OR_RETURN(const std::vector<RegisteredBackend> backends,
                   SelectBackends(MakeBackends(), config.backends));
  size_t done = 0;
  for (const ConvProblem& problem : problems) {
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(Tune(ProblemList{{problem}}.Operations(),
                         config.threads_per_worker, backends));
    spdlog::info("{} of {}: {} in {}", ++done, problems.size(),
                 ToString(problem), absl::FormatDuration(absl::Now() - start));
  }
  const PlanOrigin origin =
      OriginHere(machine, config.threads_per_worker, backends);
  return WriteTextFile("plan_file", config.plan_file,
                       absl::StrCat(ToHeader(origin), "# convgrad ", Version(),
                                    ": ", problems.size(), " problems timed\n",
                                    PlanLinesOf(backends)));
}

}  // namespace convgrad
