// `MakeCredentials` makes the credentials of a listener: TLS or plaintext.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/security/server_credentials.h"

namespace convgrad {

// Paths of PEM files.
struct TlsFiles {
  std::string cert;  // The server's and intermediate ones; "": no TLS.
  std::string key;
  std::string client_ca;  // "": clients need no certificate.
};

// Returns credentials for TLS, with client certificates if `files` has a CA for
// them; for plaintext if `files` has no server certificate. gRPC reads the
// files again each second. Requires: the files are usable at any time
// (CertificateCopies). Thread-safe.
std::shared_ptr<grpc::ServerCredentials> MakeCredentials(const TlsFiles& files);

}  // namespace convgrad
