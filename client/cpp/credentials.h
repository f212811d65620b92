// Parses a client's server list and makes its gRPC credentials.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client_options.h"
#include "grpcpp/security/credentials.h"

namespace convgrad {

// Returns the addresses in `options.server`.
std::vector<std::string> ServersOf(const ClientOptions& options);

// Returns whether the server's address is one of this host. A proxy or a tunnel
// may be behind it.
bool IsOnThisHost(const std::string& server);

struct HostAndPort {
  std::string host;  // of an IPv6 address, without brackets
  std::string port;
};

// Returns host and port of a server; none if it names no port, or if gRPC finds
// it in another way.
std::optional<HostAndPort> SplitServer(const std::string& server);

// Returns where to call a session that `server` has opened: the address that
// this server advertises, if any. A client that named an address of this host
// stays there unless the other one is of this host as well, because a tunnel
// may be behind it. Errors: kInternal if a server advertises anything but host
// and port.
absl::StatusOr<std::string> FollowedServer(const std::string& server,
                                           const std::string& advertised);

// Returns TLS credentials if `options` has a `ca`, plaintext ones otherwise.
// Errors: kInvalidArgument naming an option that is missing or contradicts
// another, or a file that isn't the expected PEM file.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options);

}  // namespace convgrad
