// Tests the messages of both ends when a connection fails for certificates or
// the lack of them.
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/certificates.h"
#include "tests/end_to_end/peers/child_server.h"

namespace convgrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// Names of Authorities' files without extensions; "": none.
struct Case {
  const char* name;
  const char* server;   // The server's certificate.
  const char* clients;  // The authority of its clients.
  const char* ca;       // The client's authority.
  const char* cert;
  const char* server_name;
  const char* client_says;
  const char* server_says;
};

constexpr char kAsked[] = "a server that asks for certificates";

constexpr Case kCases[] = {
    {"WrongServerAuthority", "ours/server", "", "other", "", "",
     "isn't from an authority in ca", "it may not trust the server's cert"},
    {"ExpiredServer", "ours/expired", "", "ours", "", "",
     "the server's certificate has expired",
     "it may not trust the server's certificate"},
    {"WrongServerName", "ours/server", "", "ours", "", "another",
     "Peer name another is not in peer certificate", ""},
    {"NoClientCertificate", "ours/server", "ours", "ours", "", "", kAsked,
     "it showed no certificate"},
    {"WrongClientAuthority", "ours/server", "ours", "ours", "other/client", "",
     kAsked, "isn't accepted: unable to get local issuer certificate"},
    {"ExpiredClient", "ours/server", "ours", "ours", "ours/expired", "", kAsked,
     "isn't accepted: certificate has expired"},
    {"PlaintextToTls", "ours/server", "", "", "", "",
     "the server may speak TLS, which needs a ca",
     "TLS is spoken here, not plaintext"},
    {"PlaintextToMutualTls", "ours/server", "ours", "", "", "",
     "the server may speak TLS, which needs a ca",
     "TLS is spoken here, not plaintext"},
    {"TlsToPlaintext", "", "", "ours", "", "",
     "the server speaks plaintext, which needs no ca",
     "plaintext is spoken here, not TLS"},
};

class TlsFailures : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    Authority ours("ours");
    ours.Issue("server");
    ours.Issue("expired", -1);
    Authority("other").Issue("client");
  }
  static std::string PathOf(const std::string& file) {
    return absl::StrCat(testing::TempDir(), "/", file);
  }
  static std::string AuthorityOf(const char* name) {
    return *name == '\0' ? "" : PathOf(absl::StrCat(name, "/ca.cert"));
  }
  static std::vector<std::string> FlagsOf(const Case& it) {
    if (*it.server == '\0') return {};
    std::vector<std::string> flags = {
        absl::StrCat("--tls_cert=", PathOf(it.server), ".cert"),
        absl::StrCat("--tls_key=", PathOf(it.server), ".key")};
    if (*it.clients != '\0') {
      flags.push_back("--tls_client_ca=" + AuthorityOf(it.clients));
    }
    return flags;
  }
  static ClientOptions OptionsOf(const Case& it, const std::string& address) {
    ClientOptions options;
    options.server = address;
    options.ca = AuthorityOf(it.ca);
    options.server_name = it.server_name;
    if (*it.cert == '\0') return options;
    options.cert = PathOf(it.cert) + ".cert";
    options.key = PathOf(it.cert) + ".key";
    return options;
  }
};

TEST_P(TlsFailures, AreExplainedAtBothEnds) {
  ChildServer server(FlagsOf(GetParam()));
  const auto client = Client::Connect(OptionsOf(GetParam(), server.address()));
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::Status status =
      (*client)->Capabilities(absl::Now() + absl::Seconds(30)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().client_says));
  server.Signal(SIGTERM);
  const Exit exit = server.Await();
  EXPECT_EQ(exit.code, 0);
  // gRPC's log line of a failed handshake, which doesn't name the peer, is
  // suppressed.
  EXPECT_FALSE(absl::StrContains(exit.output, "ssl_transport_security"));
  if (*GetParam().server_says == '\0') return;
  EXPECT_THAT(
      exit.output,
      ContainsRegex("refused the connection of 127[.]0[.]0[.]1:[0-9]+: "));
  EXPECT_THAT(exit.output, HasSubstr(GetParam().server_says));
}

INSTANTIATE_TEST_SUITE_P(Matrix, TlsFailures, testing::ValuesIn(kCases),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace convgrad
