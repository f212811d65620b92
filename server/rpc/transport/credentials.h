// `MakeCredentials` makes the credentials of a listener: TLS or plaintext.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"

namespace convgrad {

// Paths of PEM files, read again each second. A certificate and its key must be
// replaced at once, e.g. by a symbolic link to their folder.
struct TlsFiles {
  std::string cert;  // the server's, with those between it and its CA; "": none
  std::string key;
  std::string client_ca;  // "": clients need no certificate
};

// Returns TLS, with a client certificate if there is a CA for them; plaintext
// if `files` has no certificate.
// Errors: kInvalidArgument naming the flag of a file that is no PEM.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(
    const TlsFiles& files);

}  // namespace convgrad
