// These functions convert an error to the form that a gRPC client gets: status,
// detail and retry advice.
//
// Thread-safe: free functions without state.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace convgrad {

// The time that a client should wait after BUSY, in milliseconds.
inline constexpr char kPushbackMs[] = "100";

// Returns the status of the same code, with its message cut to 1024 bytes of
// printable ASCII.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Returns the trailers of `status`: a serialised ErrorDetail if it has one, and
// a retry delay if its reason is BUSY.
std::vector<std::pair<std::string, std::string>> TrailersOf(
    const absl::Status& status);

}  // namespace convgrad
