// Converts gRPC statuses to absl::Status, with the detail that convgrad servers
// attach.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace convgrad {

// Converts `status` of the finished call `context`. DetailOf and PushbackOf
// find the server's detail and retry time in the result, if the server sent
// them. Returns kUnavailable for a connection that closed while gRPC began the
// call. gRPC itself calls that UNKNOWN (grpc/grpc issue 34076).
absl::Status FromRpc(const grpc::Status& status,
                     const grpc::ClientContext& context);

// Returns a trailer of the finished call `context`; nullopt if the server
// hasn't sent it. Valid as long as the context.
std::optional<absl::string_view> TrailerOf(const grpc::ClientContext& context,
                                           const char* key);

// Returns the time after which the server wants a retry; nullopt if it named
// none.
std::optional<absl::Duration> PushbackOf(const absl::Status& status);

// Returns whether a call ended because its server accepted the connection but
// didn't answer.
bool IsSilence(const absl::Status& status);

}  // namespace convgrad
