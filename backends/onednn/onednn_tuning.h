// Times the formats that a pass may be computed in, and the pieces that an
// operation may be cut into.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "backends/core/conv_operation.h"
#include "backends/onednn/onednn_choices.h"

namespace convgrad::onednn {

// Times, on this thread with a team of options.threads, every format of every
// pass and every partition of `operation` that `choices` doesn't have yet,
// reorders and epilogue included, and adds the fastest. Takes some ten runs of
// each. A pass that needs more than `max_bytes` of memory to be timed is left
// out. Errors: kInternal if the library fails.
absl::Status Tune(const ConvOperation& operation, const ComputeOptions& options,
                  int64_t max_bytes, Choices* choices);

}  // namespace convgrad::onednn
