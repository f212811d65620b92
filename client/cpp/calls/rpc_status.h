// gRPC's statuses as ours, with the detail that convgrad's servers attach.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace convgrad {

// Returns `status` of the finished call `context`; DetailOf and PushbackOf work
// on it where the server gave a detail, or said when to come again.
absl::Status FromRpc(const grpc::Status& status,
                     const grpc::ClientContext& context);

// Returns after what time the server wants to be asked again, nullopt if it
// didn't say.
std::optional<absl::Duration> PushbackOf(const absl::Status& status);

}  // namespace convgrad
