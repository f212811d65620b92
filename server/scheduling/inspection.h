// `Inspect` checks results before the server sends them: it self-checks them
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
  kSampled,   // if it can be done; no error otherwise
  kRequired,  // the client asks for it: an error if it can't be done
};

struct InspectionRequest {
  SelfCheckMode self_check = SelfCheckMode::kOff;
  bool count_nonfinite = false;
};

struct Findings {
  std::optional<SelfCheckReport> self_check;
  std::vector<int64_t> nonfinite_counts;  // by result, if asked for
};

// Inspects the results of a run of `operation` in `buffers`. Takes scratch from
// `memory`. Requires: the worker that ran it calls this.
// Errors: kUnimplemented, kResourceExhausted or those of the forward, only if
// the check is required.
absl::StatusOr<Findings> Inspect(const InspectionRequest& request,
                                 const Backend& backend,
                                 const Operation& operation,
                                 const PlanOptions& options,
                                 const RunBuffers& buffers, CallMemory* memory);

}  // namespace convgrad
