// Making plans before calls need them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/registry.h"
#include "server/scheduling/plan_cache.h"

namespace convgrad {

struct WarmupOutcome {
  int plans = 0;  // that were asked for
  int made = 0;   // of these, that weren't in the cache
  absl::Duration elapsed;
};

// Has the cache make what is missing of the plans of `operations`, for each
// backend that supports them, for teams of `threads`.
// Errors: kCancelled as soon as `give_up` says so; a backend's.
absl::StatusOr<WarmupOutcome> WarmUp(
    const std::vector<std::shared_ptr<const Operation>>& operations,
    const std::vector<RegisteredBackend>& backends, int threads,
    PlanCache* plans, const std::function<bool()>& give_up);

}  // namespace convgrad
