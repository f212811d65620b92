// How an error of ours reaches a gRPC client: status, detail and retry advice.
//
// Thread-safe: free functions without state.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace convgrad {

// What a client that met a full queue is asked to wait.
inline constexpr char kPushbackMs[] = "100";

// Returns the status of the same code, its message cut to 1024 bytes of
// printable ASCII.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Returns the trailers of `status`: a serialised ErrorDetail if it carries one,
// and a retry delay exactly if a retry makes sense though the code is
// RESOURCE_EXHAUSTED (reason BUSY).
std::vector<std::pair<std::string, std::string>> TrailersOf(
    const absl::Status& status);

}  // namespace convgrad
