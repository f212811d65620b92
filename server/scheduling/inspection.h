// `Inspect` checks results before the server sends them: it runs a self-check
// and counts Inf and NaN elements.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/proof/self_check.h"
#include "server/memory/call_memory.h"

namespace convgrad {

enum class SelfCheckMode {
  kOff,
  kSampled,   // If possible; otherwise no error.
  kRequired,  // Asked for by the client: an error if impossible.
};

struct InspectionRequest {
  SelfCheckMode self_check = SelfCheckMode::kOff;
  bool count_nonfinite = false;
};

struct Findings {
  std::optional<SelfCheckReport> self_check;
  std::vector<int64_t> nonfinite_counts;  // By result, if asked for.
};

// Inspects the results of a run of `operation` in `buffers`. Takes scratch from
// `memory`. Requires: the worker that ran the operation calls this.
// Errors: only if the self-check is required: kUnimplemented,
// kResourceExhausted or those of the forward.
absl::StatusOr<Findings> Inspect(const InspectionRequest& request,
                                 const Backend& backend,
                                 const Operation& operation,
                                 const PlanOptions& options,
                                 const RunBuffers& buffers, CallMemory* memory);

}  // namespace convgrad
