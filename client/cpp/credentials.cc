#include "client/cpp/credentials.h"

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::StatusOr<std::string> ReadPem(absl::string_view option,
                                    const std::string& path) {
  if (path.empty()) return "";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  if (absl::StrContains(text.str(), "-----BEGIN ")) return text.str();
  return InvalidField(Reason::kOutOfRange, option, absl::StrCat("'", path, "'"),
                      "a PEM file");
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options) {
  if (options.cert.empty() != options.key.empty()) {
    return InvalidField(Reason::kMissing, options.cert.empty() ? "cert" : "key",
                        "nothing", "a PEM file: both or none");
  }
  if (options.ca.empty()) {
    if (options.cert.empty()) return grpc::InsecureChannelCredentials();
    return InvalidField(Reason::kMissing, "ca", "nothing",
                        "a PEM file, as there is a cert");
  }
  grpc::SslCredentialsOptions tls;
  ASSIGN_OR_RETURN(tls.pem_root_certs, ReadPem("ca", options.ca));
  ASSIGN_OR_RETURN(tls.pem_cert_chain, ReadPem("cert", options.cert));
  ASSIGN_OR_RETURN(tls.pem_private_key, ReadPem("key", options.key));
  return grpc::SslCredentials(tls);
}

}  // namespace convgrad
