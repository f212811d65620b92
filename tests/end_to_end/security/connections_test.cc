// Tests hostile connections without a valid call: half a request, too many
// calls, more connections than descriptors.
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/health_of.h"
#include "tests/end_to_end/peers/raw_connection.h"
#include "tests/end_to_end/peers/raw_http2.h"
#include "tests/end_to_end/peers/raw_stream.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

// Limits the descriptors of this process, and so of the children that it
// starts, unless they raise the limit.
class SoftDescriptorLimit {
 public:
  explicit SoftDescriptorLimit(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower = {limit, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~SoftDescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// Sets the limit of descriptors of a running server, and returns the old one.
rlimit LimitDescriptors(const ChildServer& server, rlim_t limit) {
  rlimit before = {};
  EXPECT_EQ(prlimit(server.process(), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit other = {limit, before.rlim_max};
  EXPECT_EQ(prlimit(server.process(), RLIMIT_NOFILE, &other, nullptr), 0);
  return before;
}

// Returns how many descriptors the server has.
int64_t Descriptors(const ChildServer& server) {
  const std::filesystem::directory_iterator open(
      absl::StrCat("/proc/", server.process(), "/fd"));
  return std::distance(begin(open), end(open));
}

TEST(Connections, NoConnectionHasCallsWithoutEnd) {
  TestServer server;
  RawHttp2 client(server.address());
  ASSERT_TRUE(client.AwaitSettings());
  client.AcknowledgeSettings();
  // A correct client would wait with the next call.
  for (int i = 0; i < 1000; ++i) {
    client.Open("/grpc.health.v1.Health/Watch");
  }
  EXPECT_TRUE(client.AwaitEnd());
}

TEST(Connections, HalfSentHttpRequestsKeepNoScraperOut) {
  Config config = TestConfig();
  config.metrics_listen = "127.0.0.1:0";
  TestServer server(config);
  const int port = server.server().metrics_port();
  std::vector<RawConnection> half_sent;
  for (int i = 0; i < 300; ++i) {
    half_sent.emplace_back(port).Send("GET /metrics HTTP/1.1\r\nHost: ");
  }
  RawConnection scraper(port);
  scraper.Send("GET /metrics HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(absl::StrContains(scraper.Read(100), "200 OK"));
}

TEST(Connections, TheServerRaisesItsDescriptorLimit) {
  constexpr int kDescriptors = 100;
  std::unique_ptr<ChildServer> server;
  {
    const SoftDescriptorLimit limit(kDescriptors);
    server = std::make_unique<ChildServer>(std::vector<std::string>());
  }
  std::vector<RawHttp2> clients;
  for (int i = 0; i < 2 * kDescriptors; ++i) {
    clients.emplace_back(server->address());
  }
  for (RawHttp2& client : clients) ASSERT_TRUE(client.AwaitSettings());
}

TEST(Connections, AServerThatCannotAcceptIsNotReady) {
  ChildServer server({});
  const auto channel =
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(HealthOf(channel, "readiness"), kServing);
  const rlimit before = LimitDescriptors(server, 3);
  RawConnection client(PortOf(server.address()));
  AwaitHealth(channel, "readiness", kNotServing);
  EXPECT_EQ(HealthOf(channel, "liveness"), kServing);
  LimitDescriptors(server, before.rlim_cur);
  AwaitHealth(channel, "readiness", kServing);
}

// Returns how many bytes that aren't HTTP/2 a server reads from a connection
// whose buffers stay full.
size_t TakenBeforeRefusal(const ChildServer& server) {
  RawConnection client(PortOf(server.address()));
  // The first byte is that of TLS, but the server speaks plaintext.
  const std::string flood(size_t{64} << 20, '\x16');
  std::atomic<size_t> sent = 0;
  std::vector<std::thread> senders;
  for (int i = 0; i < 16; ++i) {
    senders.emplace_back([&] { sent += client.Send(flood); });
  }
  for (std::thread& sender : senders) sender.join();
  return sent;
}

TEST(Connections, TheServerDoesNotReadOnWhatItRefuses) {
  const ChildServer server({});
  for (int i = 0; i < 10; ++i) {
    // The kernel's buffers of both ends hold less.
    EXPECT_LT(TakenBeforeRefusal(server), 64 << 20);
  }
}

TEST(Connections, ThoseThatSayNothingMakeRoom) {
  ChildServer server({});
  // UBSan takes every object for damaged while there is no descriptor left,
  // unless it has seen its class before.
  AwaitHealth(
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials()),
      "readiness", kServing);
  constexpr int kDescriptors = 60;
  LimitDescriptors(server, kDescriptors);
  std::vector<RawConnection> silent;
  for (int i = 0; i < 2 * kDescriptors; ++i) {
    silent.emplace_back(PortOf(server.address()));
  }
  RawHttp2 honest(server.address());
  EXPECT_TRUE(honest.AwaitSettings());
  EXPECT_TRUE(silent.front().AwaitEnd());
  // A sixteenth is left to files, less one by which the acceptor looks for
  // room.
  EXPECT_LE(Descriptors(server), kDescriptors - kDescriptors / 16 + 1);
}

TEST(Connections, ThoseWithoutCallsMakeRoom) {
  ChildServer server({});
  const auto channel =
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  AwaitHealth(channel, "readiness", kServing);
  const auto stub = v1::ConvGrad::NewStub(channel);
  RawStream stream(*stub);
  ASSERT_TRUE(stream.Write(TestHeader()));
  constexpr int kDescriptors = 100;
  LimitDescriptors(server, kDescriptors);
  std::vector<RawHttp2> idle;
  while (Descriptors(server) < kDescriptors - kDescriptors / 16) {
    ASSERT_TRUE(idle.emplace_back(server.address()).AwaitSettings());
  }
  for (int i = 0; i < 5; ++i) idle.emplace_back(server.address());
  RawHttp2 honest(server.address());
  EXPECT_TRUE(honest.AwaitSettings());
  EXPECT_TRUE(idle.front().AwaitEnd());
  // The connection with a call stays.
  for (const v1::ConvStreamRequest& frame : TestFrames()) stream.Write(frame);
  const StreamOutcome outcome = stream.Finish();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
}

}  // namespace
}  // namespace convgrad
