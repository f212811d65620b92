#include "server/flags/budget_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// For two small calls.
int64_t LeastForCalls() { return 2 * AdmissionBytes(64); }

// Returns a budget that leaves two small calls room, whichever of the other
// parts grow with it: those that no flag sets are 1/4 of it (WithDefaults).
int64_t SufficientBudget(const Config& config) {
  const int64_t others = config.memory_budget_bytes - config.CallBudgetBytes();
  return (others + LeastForCalls()) / 3 * 4 + 4;
}

}  // namespace

absl::Status CheckBudget(const Config& config) {
  const MemoryLimit& limit = config.memory_limit;
  const int64_t budget = config.memory_budget_bytes;
  const bool is_too_small = config.CallBudgetBytes() < LeastForCalls();
  const int64_t sufficient = SufficientBudget(config);
  if (is_too_small && budget == limit.bytes / 2) {
    return InvalidField(
        Reason::kOutOfRange, limit.name,
        absl::StrCat(limit.bytes, " bytes, of which half are the budget"),
        absl::StrCat(2 * sufficient,
                     " bytes, or --memory_budget_bytes=", sufficient));
  }
  if (is_too_small) {
    return InvalidField(Reason::kOutOfRange, "--memory_budget_bytes",
                        absl::StrCat(budget),
                        absl::StrCat(sufficient, " or more"));
  }
  const int64_t most = limit.bytes == 0 ? kUncountableBytes : limit.bytes;
  if (budget <= most) return absl::OkStatus();
  // The kernel would end the process when calls fill the budget.
  return InvalidField(Reason::kOutOfRange, "--memory_budget_bytes",
                      absl::StrCat(budget),
                      absl::StrCat("at most ", most, ", ", limit.name));
}

}  // namespace convgrad
