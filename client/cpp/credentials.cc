#include "client/cpp/credentials.h"

#include <regex>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "proto/pem_files.h"
#include "proto/server_address.h"

namespace convgrad {
namespace {

absl::Status CheckServers(const ClientOptions& options) {
  for (const std::string& server : ServersOf(options)) {
    if (server.empty()) {
      return Missing("server", "nothing", "HOST:PORT or unix:PATH");
    }
    // gRPC would use port 443.
    if (!HasOtherScheme(server) && !SplitServer(server)) {
      return OutOfRange("server", absl::StrCat("'", server, "'"),
                        "HOST:PORT (a server's default port is 7070) or "
                        "unix:PATH");
    }
    if (options.token.empty() || !options.ca.empty()) continue;
    if (IsOnThisHost(server)) continue;
    return OutOfRange("token", "a plaintext connection",
                      "a ca or a server on this host, a token is a secret");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ServersOf(const ClientOptions& options) {
  return absl::StrSplit(options.server, ',');
}

bool IsOnThisHost(const std::string& server) {
  static const auto& here = *new std::regex(
      R"(unix:|localhost:|127(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}:|\[::1\]:)");
  return std::regex_search(server, here,
                           std::regex_constants::match_continuous);
}

std::optional<HostAndPort> SplitServer(const std::string& server) {
  if (HasOtherScheme(server)) return std::nullopt;
  static const auto& host_and_port = *new std::regex(
      R"((?:dns:(?://[^/]*/)?)?([^\]\[:/]+|\[[^\]\[]+\]):(\d{1,5}))");
  std::smatch found;
  uint32_t port = 0;
  if (!std::regex_match(server, found, host_and_port) ||
      !absl::SimpleAtoi(found[2].str(), &port) || port == 0 || port >= 65536) {
    return std::nullopt;
  }
  const std::string bracketed = found[1].str();
  const absl::string_view host =
      absl::StripSuffix(absl::StripPrefix(bracketed, "["), "]");
  return HostAndPort{std::string(host), found[2].str()};
}

absl::StatusOr<std::string> FollowedServer(const std::string& server,
                                           const std::string& advertised) {
  if (advertised.empty() || absl::StartsWith(server, "unix:") ||
      absl::StartsWith(server, "unix-abstract:")) {
    return server;
  }
  if (!IsHostAndPort(advertised)) {
    // A hostile server may send anything.
    constexpr size_t kShown = 80;
    return BadReply(
        "address",
        absl::StrCat("'", absl::CHexEscape(advertised.substr(0, kShown)), "'"),
        "HOST:PORT, as --advertise has it");
  }
  const bool stays = IsOnThisHost(server) && !IsOnThisHost(advertised);
  return stays ? server : advertised;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options) {
  RETURN_IF_ERROR(CheckServers(options));
  if (options.cert.empty() != options.key.empty()) {
    return Missing(options.cert.empty() ? "cert" : "key", "nothing",
                   "a PEM file: both or none");
  }
  if (options.ca.empty()) {
    if (options.cert.empty()) return grpc::InsecureChannelCredentials();
    return Missing("ca", "nothing", "a PEM file, as there is a cert");
  }
  grpc::SslCredentialsOptions tls;
  ASSIGN_OR_RETURN(tls.pem_root_certs, ReadCertificates({"ca", options.ca}));
  if (!options.cert.empty()) {
    ASSIGN_OR_RETURN(tls.pem_cert_chain,
                     ReadCertificates({"cert", options.cert}));
    ASSIGN_OR_RETURN(
        tls.pem_private_key,
        ReadPrivateKey({"key", options.key}, "cert", tls.pem_cert_chain));
  }
  return grpc::SslCredentials(tls);
}

}  // namespace convgrad
