// Tests which clients get a connection, and with which certificates.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/certificates.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

Config TlsConfig(const Authority& servers, const Authority* clients) {
  Config config = TestConfig();
  config.tls_cert = servers.PathOf("server.cert");
  config.tls_key = servers.PathOf("server.key");
  if (clients != nullptr) config.tls_client_ca = clients->certificate();
  return config;
}

std::string ContentOf(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

absl::Status Ask(const ClientOptions& options) {
  const auto client = Client::Connect(options);
  if (!client.ok()) return client.status();
  return (*client)->Capabilities(absl::Now() + absl::Minutes(1)).status();
}

ClientOptions WithCertificate(const std::string& server, const Authority& trust,
                              const Authority& issuer,
                              const std::string& name) {
  ClientOptions options;
  options.server = server;
  options.ca = trust.certificate();
  options.cert = issuer.PathOf(name + ".cert");
  options.key = issuer.PathOf(name + ".key");
  return options;
}

TEST(Tls, OnlyTheRightCertificateGetsIn) {
  Authority authority("ca");
  authority.Issue("server");
  authority.Issue("right");
  authority.Issue("expired", -1);
  Authority stranger("stranger");
  stranger.Issue("right");
  TestServer server(TlsConfig(authority, &authority));

  const auto with = [&](const Authority& issuer, const std::string& name) {
    return WithCertificate(server.address(), authority, issuer, name);
  };
  EXPECT_EQ(Ask(with(authority, "right")), absl::OkStatus());
  ClientOptions none;
  none.server = server.address();
  none.ca = authority.certificate();
  ClientOptions plaintext;
  plaintext.server = server.address();
  for (const ClientOptions& options :
       {none, plaintext, with(stranger, "right"), with(authority, "expired")}) {
    const absl::Status status = Ask(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable)
        << options.cert << ": " << status;
  }
}

// All such certificates would be one client, whose sessions each could resume.
TEST(Tls, ACertificateWithoutANameNamesNoClient) {
  Authority authority("ca");
  authority.Issue("server");
  authority.Issue("named");
  authority.IssueNameless("nameless");
  Config config = TlsConfig(authority, &authority);
  config.max_client_bytes = 1;
  TestServer server(config);
  const auto client_of = [&](const std::string& name) {
    const auto channel = grpc::CreateChannel(
        server.address(),
        grpc::SslCredentials({ContentOf(authority.certificate()),
                              ContentOf(authority.PathOf(name + ".key")),
                              ContentOf(authority.PathOf(name + ".cert"))}));
    return CallRaw(channel, "ConvForward", SeedForward().SerializeAsString())
        .trailers.field;
  };
  EXPECT_EQ(client_of("named"), "client 'certificate 127.0.0.1'");
  EXPECT_EQ(client_of("nameless"), "client 'ipv4:127.0.0.1'");
}

TEST(Tls, WithoutAClientCaTheServerAloneShowsACertificate) {
  Authority authority("ca");
  authority.Issue("server");
  Authority stranger("stranger");
  TestServer server(TlsConfig(authority, nullptr));
  ClientOptions options;
  options.server = server.address();
  options.ca = authority.certificate();
  EXPECT_TRUE(Ask(options).ok());
  options.ca = stranger.certificate();
  EXPECT_EQ(Ask(options).code(), absl::StatusCode::kUnavailable);
}

TEST(Tls, TheServersNameCanBeGiven) {
  Authority authority("ca");
  authority.Issue("server");
  TestServer server(TlsConfig(authority, nullptr));
  ClientOptions options;
  options.server = server.address();
  options.ca = authority.certificate();
  options.server_name = "server";
  EXPECT_EQ(Ask(options), absl::OkStatus());
  options.server_name = "another";
  EXPECT_EQ(Ask(options).code(), absl::StatusCode::kUnavailable);
}

TEST(Tls, CertificatesAreReadAgain) {
  Authority old_authority("old");
  old_authority.Issue("server");
  Authority new_authority("new");
  new_authority.Issue("server");
  const std::string link = absl::StrCat(testing::TempDir(), "/current");
  std::filesystem::remove(link);
  std::filesystem::create_symlink(old_authority.PathOf(""), link);
  Config config = TestConfig();
  config.tls_cert = link + "/server.cert";
  config.tls_key = link + "/server.key";
  TestServer server(config);
  ClientOptions options;
  options.server = server.address();
  options.ca = new_authority.certificate();
  EXPECT_FALSE(Ask(options).ok());
  std::filesystem::create_symlink(new_authority.PathOf(""), link + ".next");
  std::filesystem::rename(link + ".next", link);
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  while (!Ask(options).ok() && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_TRUE(Ask(options).ok());
}

// gRPC would end the process because of the empty key, and would refuse all
// connections because of the other files.
TEST(Tls, AnUnusableFileChangesNothing) {
  Authority authority("ca");
  authority.Issue("server");
  authority.Issue("other");
  const Config config = TlsConfig(authority, nullptr);
  TestServer server(config);
  ClientOptions options;
  options.server = server.address();
  options.ca = authority.certificate();
  const auto expiry = [&server] {
    const std::string text = server.server().MetricsText();
    const size_t begin = text.find("convgrad_certificate_expiration");
    return text.substr(begin, text.find("# HELP", begin) - begin);
  };
  const std::string expiry_before = expiry();
  EXPECT_THAT(expiry_before, HasSubstr("tls_cert"));
  const auto expect_no_change = [&](const std::string& what) {
    absl::SleepFor(absl::Milliseconds(2500));
    EXPECT_EQ(Ask(options), absl::OkStatus()) << what;
    EXPECT_EQ(expiry(), expiry_before) << what;
  };
  std::ofstream(config.tls_key) << "";
  expect_no_change("an empty key");
  std::filesystem::copy_file(authority.PathOf("other.key"), config.tls_key,
                             std::filesystem::copy_options::overwrite_existing);
  expect_no_change("another certificate's key");
  std::ofstream(config.tls_cert) << "rubbish";
  expect_no_change("no certificate");
}

TEST(Tls, UnixSocketsAndHealthStayPlaintext) {
  Authority authority("ca");
  authority.Issue("server");
  Config config = TlsConfig(authority, &authority);
  const std::string socket =
      absl::StrCat("unix:", testing::TempDir(), "/convgrad_tls.sock");
  config.listen = absl::StrCat("127.0.0.1:0,", socket);
  TestServer server(config);
  ClientOptions options;
  options.server = socket;
  EXPECT_TRUE(Ask(options).ok());
  // gRPC would take the socket away from the first server.
  config.listen = socket;
  const auto second = DetailOf(Server::Start(config).status());
  ASSERT_TRUE(second);
  EXPECT_THAT(second->found, HasSubstr("Address already in use"));
  EXPECT_TRUE(Ask(options).ok());
}

// gRPC would serve it in plaintext, as UNIX sockets are.
TEST(Tls, AHostWhoseNameBeginsWithUnixIsNoSocket) {
  Authority authority("ca");
  authority.Issue("server");
  Config config = TlsConfig(authority, nullptr);
  // Too long for a name, so that no DNS server is asked.
  config.listen = absl::StrCat("unix", std::string(70, 'x'), ":0");
  const auto detail = DetailOf(Server::Start(config).status());
  ASSERT_TRUE(detail);
  EXPECT_THAT(detail->found, HasSubstr("Name or service not known"));
}

TEST(Tls, RefusesFilesThatAreNoCertificates) {
  Authority authority("ca");
  authority.Issue("server");
  Config config = TlsConfig(authority, nullptr);
  config.tls_key = "/nowhere";
  EXPECT_EQ(DetailOf(Server::Start(config).status())->field, "--tls_key");

  ClientOptions options;
  options.server = "127.0.0.1:1";
  options.ca = "/nowhere";
  EXPECT_EQ(DetailOf(Client::Connect(options).status())->field, "ca");
  options.ca = authority.certificate();
  options.cert = authority.PathOf("server.cert");
  EXPECT_EQ(DetailOf(Client::Connect(options).status())->field, "key");
}

TEST(Tls, RefusesAKeyThatIsAnothersOrEncrypted) {
  Authority authority("ca");
  authority.Issue("server");
  authority.Issue("other");
  authority.Encrypt("other");
  Config config = TlsConfig(authority, nullptr);
  ClientOptions options;
  options.server = "127.0.0.1:1";
  options.ca = authority.certificate();
  options.cert = config.tls_cert;
  for (const auto& [name, found, expected] :
       {std::tuple{"other.key", "another certificate's", "that of "},
        std::tuple{"other.encrypted", "other.encrypted'", "isn't encrypted"},
        std::tuple{"server.cert", "server.cert'", "a private key in PEM"}}) {
    config.tls_key = options.key = authority.PathOf(name);
    for (const absl::Status& status :
         {Server::Start(config).status(), Client::Connect(options).status()}) {
      const auto detail = DetailOf(status);
      ASSERT_TRUE(detail) << status;
      EXPECT_THAT(detail->field, AnyOf("--tls_key", "key"));
      EXPECT_THAT(detail->found, HasSubstr(found));
      EXPECT_THAT(detail->expected, HasSubstr(expected));
    }
  }
}

TEST(Tls, SaysWhyAFileCannotBeRead) {
  Authority authority("ca");
  authority.Issue("server");
  const std::string folder = testing::TempDir();
  for (const auto& [path, reason] :
       {std::tuple{folder, "(Is a directory)"},
        std::tuple{authority.PathOf("missing"), "(No such file or directory)"},
        std::tuple{std::string("/proc/self/mem"), "(Input/output error)"}}) {
    Config config = TlsConfig(authority, nullptr);
    config.tls_key = path;
    const auto key = DetailOf(Server::Start(config).status());
    ASSERT_TRUE(key);
    EXPECT_THAT(key->found, HasSubstr(reason));
    config.tls_cert = path;
    const auto certificate = DetailOf(Server::Start(config).status());
    ASSERT_TRUE(certificate);
    EXPECT_EQ(certificate->field, "--tls_cert");
    EXPECT_THAT(certificate->found, HasSubstr(reason));
  }
}

TEST(Tls, RefusesACertificateThatIsCutOff) {
  Authority authority("ca");
  authority.Issue("server");
  const Config config = TlsConfig(authority, nullptr);
  std::ostringstream whole;
  whole << std::ifstream(config.tls_cert).rdbuf();
  const std::string cut = authority.PathOf("cut");
  std::ofstream(cut) << whole.str() << whole.str().substr(0, 200);
  ClientOptions options;
  options.server = "127.0.0.1:1";
  options.ca = cut;
  const auto detail = DetailOf(Client::Connect(options).status());
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->field, "ca");
  EXPECT_EQ(detail->expected, "certificates in PEM");
}

}  // namespace
}  // namespace convgrad
