#include "server/rpc/credentials.h"

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace convgrad {
namespace {

constexpr unsigned kRefreshSeconds = 1;

// gRPC only logs a file that it can't use, and fails each handshake.
absl::Status CheckPem(absl::string_view flag, const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  if (absl::StrContains(text.str(), "-----BEGIN ")) return absl::OkStatus();
  return InvalidField(Reason::kOutOfRange, flag, absl::StrCat("'", path, "'"),
                      "a PEM file");
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(
    const TlsFiles& files) {
  if (files.cert.empty()) return grpc::InsecureServerCredentials();
  RETURN_IF_ERROR(CheckPem("--tls_cert", files.cert));
  RETURN_IF_ERROR(CheckPem("--tls_key", files.key));
  const bool mutual = !files.client_ca.empty();
  if (mutual) RETURN_IF_ERROR(CheckPem("--tls_client_ca", files.client_ca));
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.cert, files.client_ca, kRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  if (mutual) options.watch_root_certs();
  options.set_cert_request_type(
      mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace convgrad
