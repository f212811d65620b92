#include "server/scheduling/warmup.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "backends/core/conv_operation.h"
#include "backends/core/status.h"
#include "server/scheduling/nominal_time.h"

namespace convgrad {
namespace {

// Returns the operations of `work`.
std::vector<ConvOperation> OperationsOf(const WarmupWork& work) {
  std::vector<ConvOperation> operations;
  for (const ConvProblem& problem : work.problems) {
    for (DataType dtype : work.dtypes) {
      for (Layout layout : work.layouts) {
        for (Direction direction :
             {Direction::kForward, Direction::kBackward}) {
          operations.push_back(
              WholeOperation(problem, direction, dtype, layout));
        }
      }
    }
  }
  return operations;
}

}  // namespace

absl::StatusOr<WarmupOutcome> WarmUp(
    const WarmupWork& work, const std::vector<RegisteredBackend>& backends,
    int threads, PlanCache* plans, const std::function<bool()>& give_up) {
  const absl::Time start = absl::Now();
  WarmupOutcome outcome;
  for (const ConvOperation& operation : OperationsOf(work)) {
    for (const RegisteredBackend& entry : backends) {
      if (!entry.backend.ok()) continue;
      const Backend& backend = **entry.backend;
      if (!backend.CheckSupport(operation).ok()) continue;
      if (give_up()) {
        return MakeError(absl::StatusCode::kCancelled,
                         {Reason::kCancelled, "warm-up", "given up", ""});
      }
      const int devices = std::max(1, backend.device_count());
      for (const ConvOperation& part :
           PlannedOperations(backend, operation, threads)) {
        for (int device = 0; device < devices; ++device) {
          ASSIGN_OR_RETURN(const PlanCache::Lookup lookup,
                           plans->Get(backend, part,
                                      {.threads = threads, .device = device}));
          ++outcome.plans;
          if (!lookup.hit) ++outcome.made;
        }
      }
    }
  }
  outcome.elapsed = absl::Now() - start;
  return outcome;
}

}  // namespace convgrad
