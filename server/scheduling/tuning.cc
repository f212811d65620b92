#include "server/scheduling/tuning.h"

#include <cstdint>
#include <limits>

#include "backends/core/status.h"
#include "server/scheduling/nominal_time.h"

namespace convgrad {

absl::Status Tune(
    const std::vector<std::shared_ptr<const Operation>>& operations,
    int threads, const std::vector<RegisteredBackend>& backends) {
  const PlanOptions options = {
      .threads = threads,
      .deterministic = false,
      .timing_bytes = std::numeric_limits<int64_t>::max()};
  for (const RegisteredBackend& entry : backends) {
    if (!entry.backend.ok()) continue;
    const Backend& backend = **entry.backend;
    for (const auto& operation : operations) {
      if (!backend.CheckSupport(*operation).ok()) continue;
      for (const auto& part : PlannedOperations(backend, operation, threads)) {
        RETURN_IF_ERROR(backend.MakePlan(*part, options).status());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace convgrad
