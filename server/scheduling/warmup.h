// `WarmUp` makes plans before calls need them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/registry.h"
#include "server/memory/memory_budget.h"
#include "server/scheduling/plan_cache.h"
#include "server/scheduling/routing.h"

namespace convgrad {

struct WarmupOutcome {
  int plans = 0;  // Plans asked for.
  int made = 0;   // Plans that the cache lacked.
  absl::Duration elapsed;
};

// Receives the result of a warm-up.
using WarmupDone = std::function<void(const absl::StatusOr<WarmupOutcome>&)>;

// Checks that calls may have `operations`, because a plan that is larger takes
// hours, and other warm-ups wait for it.
// Errors: kResourceExhausted, reason LIMIT_EXCEEDED, if an operation exceeds a
// limit of `router`, or if its call wouldn't fit in `budget`.
absl::Status CheckLimits(
    const std::vector<std::shared_ptr<const Operation>>& operations,
    const Router& router, const MemoryBudget& budget);

// Makes the plans of `operations` that `plans` lacks, on the calling thread,
// for each backend that supports them and for `threads` threads.
// Errors: kCancelled as soon as `give_up` returns true; those of a backend.
absl::StatusOr<WarmupOutcome> WarmUp(
    const std::vector<std::shared_ptr<const Operation>>& operations,
    const std::vector<RegisteredBackend>& backends, int threads,
    PlanCache* plans, const std::function<bool()>& give_up);

}  // namespace convgrad
