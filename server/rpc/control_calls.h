// These functions handle calls without tensors and sessions: GetCapabilities of
// convgrad.v1.ConvGrad, and Warmup of convgrad.v1.ConvGradAdmin.
#pragma once

#include "absl/status/status.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// Handles GetCapabilities.
absl::Status HandleGetCapabilities(PlainCall* call);

// Handles Warmup. Answers when the warm-up thread has made the plans.
absl::Status HandleWarmup(PlainCall* call);

}  // namespace convgrad
