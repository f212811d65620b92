// Tests that sessions leave no memory behind in the server's process.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

constexpr int kSessions = 1000;
constexpr int kSmallSessions = 2000;
// Of a session's tensor: many pages, because the heap gives back whole ones.
constexpr int64_t kBytes = int64_t{256} << 10;
constexpr double kLeaseSeconds = 15;
// Of sessions that are closed before.
constexpr double kLongLeaseSeconds = 3600;

class SessionMemory : public ::testing::Test {
 protected:
  // Opens and uses sessions of `bytes`. Renews their leases, because on a busy
  // machine the first ones would end before the last one is open.
  void Use(int count, int64_t bytes, double lease_seconds) {
    v1::OpenSessionRequest open;
    open.set_lease_seconds(lease_seconds);
    absl::Time renewed = absl::Now();
    for (int i = 0; i < count; ++i) {
      if (absl::Now() - renewed > absl::Seconds(5)) {
        RenewAll();
        renewed = absl::Now();
      }
      sessions_.push_back(std::make_unique<SessionClient>(channel_, open));
      SessionClient& session = *sessions_.back();
      v1::Tensor tensor;
      tensor.set_dtype(v1::DATA_TYPE_F32);
      tensor.set_layout(v1::LAYOUT_NCX);
      tensor.add_dims(1);
      tensor.add_dims(bytes / 4);
      const auto put =
          session.Put("x", tensor, std::string(bytes, static_cast<char>(i)));
      ASSERT_TRUE(put.status.ok()) << put.status.error_message();
      ASSERT_TRUE(session.Get("x").status.ok());
    }
  }

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
  const std::shared_ptr<grpc::Channel> channel_ = [this] {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(
        server_.address(), grpc::InsecureChannelCredentials(), arguments);
  }();
  std::vector<std::unique_ptr<SessionClient>> sessions_;
};

TEST_F(SessionMemory, IsGivenBackWhenLeasesEnd) {
  // Small blocks in use hold pages of the heap, some MiB that vary with their
  // addresses. So each round is compared with the largest size of the rounds
  // before. Memory lost with each session would be lost in every round.
  int64_t before = 0;
  int64_t after = 0;
  const auto is_back = [&] { return after <= before + before / 50; };
  for (int round = 0; round < 3 && (round < 2 || !is_back()); ++round) {
    before = std::max(before, after);
    Use(kSessions, kBytes, kLongLeaseSeconds);
    CloseAll();
    after = Settled();
    std::cout << after << " bytes once they are closed\n";
  }
  for (int round = 0; round < 5 && (round < 1 || !is_back()); ++round) {
    before = std::max(before, after);
    const int64_t at_start = after;
    Use(kSessions, kBytes, kLeaseSeconds);
    const int64_t during = server_.MemoryBytes("VmRSS");
    EXPECT_GT(during, at_start + kSessions * kBytes * 9 / 10);
    sessions_.clear();
    after = Settled();
    std::cout << before << " bytes before, " << during << " with them, "
              << after << " after\n";
  }
  EXPECT_LE(after, before + before / 50);
}

TEST_F(SessionMemory, TakesLittleForItself) {
  Use(100, 64, kLongLeaseSeconds);
  CloseAll();
  const int64_t before = Settled();
  Use(kSmallSessions, 64, kLongLeaseSeconds);
  // The resident memory of one buffer of the pool and of the bookkeeping.
  const int64_t each = (server_.MemoryBytes("VmRSS") - before) / kSmallSessions;
  std::cout << each << " bytes a session, its tensor of 64 included\n";
  constexpr int64_t kBuffer = 4096;
  EXPECT_LE(each, 4096 + kBuffer);
  CloseAll();
}

}  // namespace
}  // namespace convgrad
