#include "server/warmer.h"

#include <utility>

#include "backends/core/convolution/problem_list.h"
#include "backends/core/status.h"
#include "server/flags/text_file.h"
#include "spdlog/spdlog.h"

namespace convgrad {

Warmer::Warmer(ComputeEngine* engine, int threads)
    : engine_(*engine), threads_(threads) {}

absl::Status Warmer::Start(bool proves, const std::string& path,
                           const std::function<void()>& ready) {
  proves = proves && !engine_.proofs->empty();
  if (proves) {
    thread_.Post([this] {
      engine_.proofs->Run(threads_, [this] { return stopping_.load(); });
    });
  }
  if (!path.empty()) return PostFile(path, ready);
  if (proves) {
    thread_.Post(ready);
  } else {
    ready();
  }
  return absl::OkStatus();
}

void Warmer::Post(std::vector<std::shared_ptr<const Operation>> work,
                  std::function<bool()> give_up, WarmupDone done) {
  thread_.Post([this, work = std::move(work), give_up = std::move(give_up),
                done = std::move(done)] {
    done(WarmUp(work, engine_.backends, threads_, &engine_.plans,
                [&] { return stopping_ || give_up(); }));
  });
}

absl::Status Warmer::PostFile(const std::string& path,
                              std::function<void()> ready) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile("warmup_file", path));
  ProblemList work;
  auto problems = ParseProblems(text, [this](const ConvProblem& problem) {
    return CheckLimits(ProblemList{{problem}}.Operations(), engine_.router,
                       engine_.memory->budget);
  });
  if (!problems.ok()) {
    return WithFieldPrefix(problems.status(), "--warmup_file ");
  }
  work.problems = *std::move(problems);
  Post(
      work.Operations(), [] { return false; },
      [ready = std::move(ready)](const absl::StatusOr<WarmupOutcome>& outcome) {
        if (outcome.ok()) {
          spdlog::info("warmed up: {} plans in {}", outcome->plans,
                       absl::FormatDuration(outcome->elapsed));
        } else {
          spdlog::warn("warm-up: {}", std::string(outcome.status().message()));
        }
        ready();
      });
  return absl::OkStatus();
}

}  // namespace convgrad
