// gRPC's statuses as ours, with the detail that convgrad's servers attach.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace convgrad {

// Returns `status` of the finished call `context`; DetailOf works on it where
// the server gave a detail.
absl::Status FromRpc(const grpc::Status& status,
                     const grpc::ClientContext& context);

}  // namespace convgrad
