// Parses a client's server list and makes its gRPC credentials.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client_options.h"
#include "grpcpp/security/credentials.h"

namespace convgrad {

// Returns the addresses in `options.server`.
std::vector<std::string> ServersOf(const ClientOptions& options);

// Returns TLS credentials if `options` has a `ca`, plaintext ones otherwise.
// Errors: kInvalidArgument naming an option that is missing or contradicts
// another, or a file that isn't the expected PEM file.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options);

}  // namespace convgrad
