// Tests how the C++ client finds the server of a session among several.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/client/cpp/stand_in_dns.h"
#include "tests/end_to_end/client/cpp_session.h"
#include "tests/end_to_end/peers/certificates.h"

namespace convgrad {
namespace {

// The name in the servers' certificates, beside 127.0.0.1.
constexpr char kName[] = "server";

// Two servers with TLS, at one port of 127.0.0.1 and 127.0.0.2.
class CppReplicasTest : public ::testing::Test {
 protected:
  CppReplicasTest() {
    SetAddresses(kName, {"127.0.0.1", "127.0.0.2"});
    authority_.Issue(kName);
    authority_.Issue("trainer");
    first_ = Start("127.0.0.1:0");
    const std::vector<std::string> parts =
        absl::StrSplit(first_->address(), ':');
    port_ = parts.back();
    second_ = Start(absl::StrCat("127.0.0.2:", port_));
  }

  std::unique_ptr<TestServer> Start(const std::string& listen,
                                    const std::string& advertise = "") {
    Config config = TestConfig();
    config.listen = listen;
    config.advertise = advertise;
    config.tls_cert = authority_.PathOf("server.cert");
    config.tls_key = authority_.PathOf("server.key");
    config.tls_client_ca = authority_.certificate();
    return std::make_unique<TestServer>(config);
  }

  ClientOptions OptionsOf(const std::string& server,
                          const std::string& server_name = "") {
    ClientOptions options = OptionsFor(server);
    options.retries->max_attempts = 3;
    options.ca = authority_.certificate();
    options.cert = authority_.PathOf("trainer.cert");
    options.key = authority_.PathOf("trainer.key");
    options.server_name = server_name;
    return options;
  }

  std::string NameAndPort() const { return absl::StrCat(kName, ":", port_); }

  // Opens a session at the second server, with a tensor "w" of this value.
  void Train(const std::string& name, float value) {
    const auto session =
        Session::Open(OptionsOf(second_->address(), kName), {.name = name});
    ASSERT_TRUE(session.ok()) << session.status();
    const TensorDescriptor one{DataType::kF32, Layout::kNCX, {1}};
    const Floats values = {value};
    ASSERT_TRUE((*session)->Put("w", one, ViewOf(values)).ok());
  }

  Authority authority_{"replicas"};
  std::unique_ptr<TestServer> first_;
  std::unique_ptr<TestServer> second_;
  std::string port_;
};

void ExpectResumed(const absl::StatusOr<std::unique_ptr<Session>>& session,
                   float value) {
  ASSERT_TRUE(session.ok()) << session.status();
  const auto found = (*session)->Get("w");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(FloatsIn(found->data.bytes()), Floats{value});
}

TEST_F(CppReplicasTest, ResumesWhereverTheSessionIs) {
  Train("one", 3);
  ExpectResumed(Session::Resume(OptionsOf(NameAndPort()), "", "one"), 3);
  ExpectResumed(Session::Resume(OptionsOf(absl::StrCat(first_->address(), ",",
                                                       second_->address()),
                                          kName),
                                "", "one"),
                3);
  const absl::Status unknown =
      Session::Resume(OptionsOf(NameAndPort()), "", "two").status();
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;
}

TEST_F(CppReplicasTest, AServerThatIsAwayMayHaveTheSession) {
  Train("one", 3);
  first_.reset();
  ExpectResumed(Session::Resume(OptionsOf(NameAndPort()), "", "one"), 3);
  const absl::Status unknown =
      Session::Resume(OptionsOf(NameAndPort()), "", "two").status();
  EXPECT_TRUE(absl::IsUnavailable(unknown)) << unknown;
}

TEST_F(CppReplicasTest, SessionsOfAllServersAreListedAndClosed) {
  const auto session = Session::Open(OptionsOf(second_->address(), kName),
                                     {.name = std::string("one")});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto client = Client::Connect(OptionsOf(NameAndPort()));
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  for (int i = 0; i < 4; ++i) {
    const auto listed = (*client)->Sessions(false, deadline);
    ASSERT_TRUE(listed.ok()) << listed.status();
    ASSERT_EQ(listed->sessions_size(), 1);
    EXPECT_EQ(listed->sessions(0).name(), "one");
  }
  const std::string handle =
      (*client)->Sessions(false, deadline)->sessions(0).handle();
  EXPECT_EQ((*client)->CloseSession(handle, deadline), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound((*client)->CloseSession(handle, deadline)));
  EXPECT_EQ((*client)->Sessions(false, deadline)->sessions_size(), 0);
}

TEST_F(CppReplicasTest, GoesOnAtTheAdvertisedAddress) {
  const std::string address = absl::StrCat("127.0.0.2:", port_);
  second_.reset();
  second_ = Start(address, address);
  Train("one", 3);
  const ClientOptions options = OptionsOf(NameAndPort(), kName);
  ExpectResumed(Session::Resume(options, "", "one"), 3);
}

TEST_F(CppReplicasTest, ASessionIsClosedIfItsServerAdvertisesAnother) {
  const std::string address = absl::StrCat("127.0.0.2:", port_);
  second_.reset();
  second_ = Start(address, first_->address());
  const ClientOptions options = OptionsOf(address, kName);
  const absl::Status refused = Session::Open(options, {.name = "one"}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(DetailOf(refused)->field, "server");
  const auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  const auto listed =
      (*client)->Sessions(/*everybody=*/false, absl::InfiniteFuture());
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->sessions_size(), 0);
}

}  // namespace
}  // namespace convgrad
