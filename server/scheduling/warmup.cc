#include "server/scheduling/warmup.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/batch_slices.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "server/scheduling/nominal_time.h"

namespace convgrad {
namespace {

// Returns the bytes that a call needs at least: those of a stream with one item
// a slice.
int64_t LeastBytes(const Operation& operation) {
  int64_t bytes = ItemBytes(operation);
  for (const TensorUses& uses :
       {operation.OperandUses(), operation.ResultUses()}) {
    for (const TensorUse& use : uses) {
      if (use.tensor == nullptr || use.has_batch) continue;
      bytes = SaturatingAdd(bytes, *ByteSize(*use.tensor));
    }
  }
  return bytes;
}

}  // namespace

absl::Status CheckLimits(
    const std::vector<std::shared_ptr<const Operation>>& operations,
    const Router& router, const MemoryBudget& budget) {
  for (const auto& operation : operations) {
    RETURN_IF_ERROR(router.CheckLimits(*operation));
    const int64_t bytes = LeastBytes(*operation);
    if (bytes <= budget.capacity_bytes()) continue;
    return LimitExceeded(
        "operation", absl::StrCat(bytes, " bytes of operands and results"),
        absl::StrCat("at most ", budget.capacity_bytes(),
                     ", the server's memory budget for calls"));
  }
  return absl::OkStatus();
}

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
