// `MakeCredentials` makes the credentials of a listener: TLS or plaintext.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"

namespace convgrad {

// Paths of PEM files, which the server reads again each second. Replace a
// certificate and its key in one step, e.g. by a symbolic link to their folder.
struct TlsFiles {
  std::string cert;  // The server's and intermediate ones; "": no TLS.
  std::string key;
  std::string client_ca;  // "": clients need no certificate.
};

// Returns credentials for TLS, with client certificates if `files` has a CA for
// them; for plaintext if `files` has no server certificate. Thread-safe.
// Errors: kInvalidArgument naming the flag of a file that isn't PEM.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(
    const TlsFiles& files);

}  // namespace convgrad
