// How a client shows who it is, and whom it trusts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client_options.h"
#include "grpcpp/security/credentials.h"

namespace convgrad {

// Returns the servers' addresses.
std::vector<std::string> ServersOf(const ClientOptions& options);

// Returns TLS if `options` has a `ca`, plaintext otherwise.
// Errors: kInvalidArgument naming an option that is missing or doesn't fit the
// others, or a file that isn't what it should be.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options);

}  // namespace convgrad
