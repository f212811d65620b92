// A look at results before they leave: whether they can be true, and how many
// numbers in them are none.
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
  kSampled,   // where it can be done; its failure to run is nobody's error
  kRequired,  // asked for: an error if it can't be done
};

struct InspectionRequest {
  SelfCheckMode self_check = SelfCheckMode::kOff;
  bool count_nonfinite = false;
};

struct Findings {
  std::optional<SelfCheckReport> self_check;
  std::vector<int64_t> nonfinite_counts;  // by result, if asked for
};

// Inspects what a Run of `operation` left in `buffers`. To be called on the
// worker that ran it. Takes scratch from `memory`.
// Errors: kUnimplemented, kResourceExhausted or the forward's, only where the
// check is required.
absl::StatusOr<Findings> Inspect(const InspectionRequest& request,
                                 const Backend& backend,
                                 const Operation& operation,
                                 const PlanOptions& options,
                                 const RunBuffers& buffers, CallMemory* memory);

}  // namespace convgrad
