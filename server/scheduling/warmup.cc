#include "server/scheduling/warmup.h"

#include <algorithm>

#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "server/scheduling/nominal_time.h"

namespace convgrad {

absl::StatusOr<WarmupOutcome> WarmUp(
    const std::vector<std::shared_ptr<const Operation>>& operations,
    const std::vector<RegisteredBackend>& backends, int threads,
    PlanCache* plans, const std::function<bool()>& give_up) {
  const absl::Time start = SteadyNow();
  WarmupOutcome outcome;
  for (const auto& operation : operations) {
    for (const RegisteredBackend& entry : backends) {
      if (!entry.backend.ok()) continue;
      const Backend& backend = **entry.backend;
      if (!backend.CheckSupport(*operation).ok()) continue;
      if (give_up()) {
        return MakeError(absl::StatusCode::kCancelled,
                         {Reason::kCancelled, "warm-up", "given up", ""});
      }
      const int devices = std::max(1, backend.device_count());
      for (const auto& planned :
           PlannedOperations(backend, operation, threads)) {
        for (int device = 0; device < devices; ++device) {
          ASSIGN_OR_RETURN(const PlanCache::Lookup lookup,
                           plans->Get(backend, *planned,
                                      {.threads = threads, .device = device}));
          ++outcome.plans;
          if (!lookup.hit) ++outcome.made;
        }
      }
    }
  }
  outcome.elapsed = SteadyNow() - start;
  return outcome;
}

}  // namespace convgrad
