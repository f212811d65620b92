// Tests that sessions leave no memory behind in the server's process.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/heap_bytes.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

constexpr int kSessions = 1000;
constexpr int kSmallSessions = 2000;
constexpr int64_t kSmallBytes = 64;
// Of a session's tensor: many pages, because the heap gives back whole ones.
constexpr int64_t kBytes = int64_t{256} << 10;
constexpr double kLeaseSeconds = 10;
// Of sessions that are closed before.
constexpr double kLongLeaseSeconds = 3600;

// Open sessions with a tensor each.
class OpenSessions {
 public:
  explicit OpenSessions(std::shared_ptr<grpc::Channel> channel)
      : channel_(std::move(channel)) {}

  // Opens and uses sessions of `bytes`. Renews their leases, because on a busy
  // machine the first ones would end before the last one is open.
  void Use(int count, int64_t bytes, double lease_seconds) {
    v1::OpenSessionRequest open;
    open.set_lease_seconds(lease_seconds);
    absl::Time renewed = absl::Now();
    for (int i = 0; i < count; ++i) {
      if (absl::Now() - renewed > absl::Seconds(3)) {
        RenewAll();
        renewed = absl::Now();
      }
      sessions_.push_back(std::make_unique<SessionClient>(channel_, open));
      SessionClient& session = *sessions_.back();
      const auto put =
          session.Put("x", TensorOf(v1::LAYOUT_NCX, {1, bytes / 4}),
                      std::string(bytes, static_cast<char>(i)));
      ASSERT_TRUE(put.status.ok()) << put.status.error_message();
      ASSERT_TRUE(session.Get("x").status.ok());
    }
  }

  void CloseAll() {
    for (const auto& session : sessions_) {
      grpc::ClientContext context;
      v1::CloseSessionRequest request;
      request.set_session_id(session->id());
      v1::CloseSessionResponse closed;
      EXPECT_TRUE(
          session->stub().CloseSession(&context, request, &closed).ok());
    }
    sessions_.clear();
  }

  // Leaves them open until their leases end.
  void Leave() { sessions_.clear(); }

 private:
  void RenewAll() {
    for (const auto& session : sessions_) {
      grpc::ClientContext context;
      v1::RenewSessionRequest request;
      request.set_session_id(session->id());
      v1::SessionResponse renewed;
      EXPECT_TRUE(
          session->stub().RenewSession(&context, request, &renewed).ok());
    }
  }

  const std::shared_ptr<grpc::Channel> channel_;
  std::vector<std::unique_ptr<SessionClient>> sessions_;
};

class SessionMemory : public ::testing::Test {
 protected:
  // Waits until /metrics has `line`, for longer than a lease.
  void Await(const std::string& line) {
    const absl::Time limit = absl::Now() + absl::Minutes(2);
    while (!absl::StrContains(HttpGet(server_.metrics_port(), "/metrics"),
                              absl::StrCat("\n", line, "\n"))) {
      ASSERT_LT(absl::Now(), limit) << line;
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  // Waits until the server keeps nothing and its pool has freed its buffers.
  // Returns the resident size.
  int64_t Settled() {
    Await("convgrad_sessions 0");
    Await("convgrad_kept_bytes 0");
    Await("convgrad_buffer_idle_bytes 0");
    // Memory is freed just after it was counted, so the test waits until little
    // has changed for two periods of the server's background thread. A kernel
    // that reclaims pages of idle processes changes a few all the time.
    constexpr int64_t kLittle = int64_t{256} << 10;
    int64_t bytes = 0;
    for (int same = 0; same < 100; ++same) {
      const int64_t now = server_.MemoryBytes("VmRSS");
      if (std::abs(now - bytes) > kLittle) {
        bytes = now;
        same = 0;
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    return bytes;
  }

  ChildServer server_{{"--metrics_listen=127.0.0.1:0",
                       "--memory_budget_bytes=4294967296",
                       "--max_kept_bytes=1610612736", "--max_client_sessions=0",
                       "--buffer_pool_idle_time=1s"}};
  OpenSessions sessions_{[this] {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(
        server_.address(), grpc::InsecureChannelCredentials(), arguments);
  }()};
};

TEST_F(SessionMemory, IsGivenBackWhenLeasesEnd) {
  sessions_.Use(kSessions, kBytes, kLongLeaseSeconds);
  sessions_.CloseAll();
  const int64_t before = Settled();
  sessions_.Use(kSessions, kBytes, kLeaseSeconds);
  const int64_t taken = server_.MemoryBytes("VmRSS") - before;
  EXPECT_GT(taken, kSessions * kBytes * 9 / 10);
  sessions_.Leave();
  const int64_t left = Settled() - before;
  std::cout << taken << " bytes taken, " << left << " of them left\n";
  // Small blocks in use hold pages of the heap, some MiB that vary with their
  // addresses.
  EXPECT_LE(left, taken / 10);
}

TEST_F(SessionMemory, TakesLittleForItself) {
  sessions_.Use(100, kSmallBytes, kLongLeaseSeconds);
  sessions_.CloseAll();
  const int64_t before = Settled();
  sessions_.Use(kSmallSessions, kSmallBytes, kLongLeaseSeconds);
  // The resident memory of one buffer of the pool and of the bookkeeping.
  const int64_t each = (server_.MemoryBytes("VmRSS") - before) / kSmallSessions;
  std::cout << each << " bytes a session, its tensor of 64 included\n";
  constexpr int64_t kBuffer = 4096;
  EXPECT_LE(each, 4096 + kBuffer);
  sessions_.CloseAll();
}

// The server is in this process, so malloc tells its bytes to the last one.
TEST(SessionHeap, HasNothingOfEndedSessions) {
  Config config = TestConfig();
  config.max_client_sessions = 0;
  TestServer server(config);
  OpenSessions sessions(server.channel());
  // Returns the bytes that sessions have left, which end by Close or by their
  // leases.
  const auto left_by = [&](bool is_closed) {
    const int64_t before = HeapBytes();
    sessions.Use(kSmallSessions, kSmallBytes,
                 is_closed ? kLongLeaseSeconds : kLeaseSeconds);
    if (is_closed) {
      sessions.CloseAll();
    } else {
      sessions.Leave();
    }
    for (const char* what : {"sessions", "kept_bytes", "buffer_idle_bytes"}) {
      server.AwaitMetric(absl::StrCat("convgrad_", what, " 0"));
    }
    const int64_t left = HeapBytes() - before;
    std::cout << left << " bytes left by " << kSmallSessions << " sessions\n";
    return left;
  };
  // The first ones make tables that stay.
  left_by(true);
  // Threads keep some freed blocks, which malloc counts.
  constexpr int64_t kMost = int64_t{64} * kSmallSessions;
  EXPECT_LE(left_by(true), kMost);
  EXPECT_LE(left_by(false), kMost);
}

}  // namespace
}  // namespace convgrad
