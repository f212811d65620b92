// How a client shows who it is, and whom it trusts.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "grpcpp/security/credentials.h"

namespace convgrad {

// Returns TLS if `options` has a `ca`, plaintext otherwise.
// Errors: kInvalidArgument naming an option that doesn't fit the others, or a
// file that is no PEM.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options);

}  // namespace convgrad
