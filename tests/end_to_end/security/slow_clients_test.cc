// Tests clients that send a part and stop, or don't take their answers. The
// server frees their memory and serves others.
#include <fcntl.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "proto/file_descriptor.h"
#include "tests/end_to_end/peers/pending_call.h"
#include "tests/end_to_end/peers/raw_http2.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr char kBackward[] = "/convgrad.v1.ConvGrad/ConvBackward";
constexpr char kToken[] = "token-token-token-token";
constexpr int kHalfSentCalls = 24;
constexpr int64_t kHalfSentBytes = 30 * kMiB;

// Returns the defaults, except shorter times.
Config ShortConfig() {
  Config config = TestConfig();
  config.memory_budget_bytes = 512 * kMiB;
  config.min_client_rate = 1024 * kMiB;
  config.unary_idle_timeout = absl::Milliseconds(500);
  return config;
}

std::string EndedBackwards(const char* code, int count,
                           const char* backend = "none",
                           const char* dtype = "none") {
  return absl::StrCat("convgrad_requests_total{backend=\"", backend,
                      "\",code=\"", code, "\",dtype=\"", dtype,
                      "\",op=\"backward\"} ", count);
}

class SlowClientsTest : public testing::Test {
 protected:
  explicit SlowClientsTest(const Config& config = ShortConfig())
      : server_(config, Puppets()) {}

  std::vector<RegisteredBackend> Puppets() {
    std::vector<RegisteredBackend> backends;
    backends.push_back(RegisteredPuppet("puppet", &strings_));
    return backends;
  }
  void AwaitGauges(const std::function<bool(const Readings&)>& reached) {
    while (!reached(server_.server().gauges())) std::this_thread::yield();
  }
  // Starts calls that declare more than the memory, send a little and stop.
  void SendHalves(RawHttp2* client,
                  std::map<std::string, std::string> metadata = {}) {
    metadata["convgrad-request-bytes"] = absl::StrCat(kHalfSentBytes);
    for (int i = 0; i < kHalfSentCalls; ++i) {
      const uint32_t stream = client->Open(kBackward, metadata);
      client->BeginMessage(stream, kHalfSentBytes);
      client->Send(stream, std::string(2048, '\0'));
    }
    AwaitGauges([](const Readings& g) {
      return g.SumOf("convgrad_admission_waiters") > 10;
    });
  }
  // Makes a call whose message never comes.
  RawReply CallWithoutMessage(absl::Time deadline = absl::InfiniteFuture()) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    context.AddMetadata("authorization", absl::StrCat("Bearer ", kToken));
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(server_.channel());
    const auto call = stub.PrepareCall(&context, kBackward, &queue);
    void* tag;
    bool ok;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    RawReply reply;
    call->Finish(&reply.status, nullptr);
    queue.Next(&tag, &ok);
    reply.trailers = TrailersOf(context);
    return reply;
  }

  PuppetStrings strings_;
  TestServer server_;
};

TEST_F(SlowClientsTest, HalfSentMessagesDoNotKeepOthersOut) {
  RawHttp2 attacker(server_.address());
  SendHalves(&attacker);
  for (int i = 0; i < 3; ++i) {
    PendingCall honest(server_.stub(), absl::Seconds(10));
    EXPECT_EQ(honest.Await(), grpc::StatusCode::OK);
  }
  server_.AwaitMetric(EndedBackwards("DeadlineExceeded", kHalfSentCalls));
  server_.ExpectNothingHeld();
}

TEST_F(SlowClientsTest, ASlowClientIsToldWhy) {
  const RawReply reply = CallWithoutMessage();
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(reply.trailers.reason, "DEADLINE");
  EXPECT_EQ(reply.trailers.field, "request");
  EXPECT_TRUE(absl::StartsWith(reply.trailers.found, "no whole message of up"))
      << reply.trailers.found;
  EXPECT_TRUE(absl::StrContains(reply.trailers.expected, "--min_client_rate"))
      << reply.trailers.expected;
  server_.ExpectNothingHeld();
}

class HangingDiskTest : public SlowClientsTest {
 protected:
  static std::string Tokens() { return testing::TempDir() + "/hanging.tokens"; }
  static Config WithTokens() {
    std::filesystem::remove(Tokens());
    std::ofstream(Tokens()) << "trainer train " << kToken << "\n";
    Config config = ShortConfig();
    config.token_file = Tokens();
    return config;
  }
  HangingDiskTest() : SlowClientsTest(WithTokens()) {}
};

// A read of a terminal waits for its other end. Without the server's background
// thread, slow clients and calls that wait for memory would wait for it as
// well.
TEST_F(HangingDiskTest, ATokenFileThatHangsHoldsUpNothingElse) {
  const FileDescriptor terminal(posix_openpt(O_RDWR | O_NOCTTY));
  ASSERT_EQ(grantpt(terminal.get()), 0);
  ASSERT_EQ(unlockpt(terminal.get()), 0);
  std::filesystem::create_symlink(ptsname(terminal.get()), Tokens() + ".next");
  std::filesystem::rename(Tokens() + ".next", Tokens());
  absl::SleepFor(absl::Milliseconds(2500));
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  EXPECT_EQ(CallWithoutMessage(deadline).trailers.field, "request");
}

TEST_F(SlowClientsTest, AnswersThatAreNotTakenAreDropped) {
  const std::string message = SeedBackward().SerializeAsString();
  RawHttp2 client(server_.address(), 0);
  const uint32_t stream = client.Open(kBackward);
  client.SendMessage(stream, message);
  client.Finish(stream);
  server_.AwaitMetric(EndedBackwards("OK", 1, "puppet", "f32"));
  EXPECT_GT(server_.server().gauges().SumOf("convgrad_buffers"), 0);
  server_.ExpectNothingHeld();
}

// Tests with the default rate, at which 512 MiB may take more than half an
// hour.
class ProgressTest : public SlowClientsTest {
 protected:
  static Config PatientConfig() {
    Config config = ShortConfig();
    config.memory_budget_bytes = 4096 * kMiB;
    config.min_client_rate = Config().min_client_rate;
    config.unary_idle_timeout = absl::Seconds(2);
    return config;
  }
  explicit ProgressTest(const Config& config = PatientConfig())
      : SlowClientsTest(config) {}

  // Starts a call that declares `bytes`, and waits until it is admitted.
  uint32_t BeginCall(RawHttp2* client, int64_t bytes) {
    const uint32_t stream = client->Open(
        kBackward, {{"convgrad-request-bytes", absl::StrCat(bytes)}});
    client->BeginMessage(stream, static_cast<uint32_t>(bytes));
    AwaitGauges([=](const Readings& g) {
      return g.SumOf("convgrad_memory_used_bytes") > bytes;
    });
    return stream;
  }
};

TEST_F(ProgressTest, WhoDeclaresMuchAndSendsNothingHoldsNoMemory) {
  RawHttp2 client(server_.address());
  BeginCall(&client, 512 * kMiB);
  server_.AwaitMetric(EndedBackwards("DeadlineExceeded", 1));
  server_.ExpectNothingHeld();
}

class SlowButHonestTest : public ProgressTest {
 protected:
  static constexpr int64_t kRate = 16384;
  static Config SlowConfig() {
    Config config = PatientConfig();
    config.min_client_rate = kRate;
    return config;
  }
  SlowButHonestTest() : ProgressTest(SlowConfig()) {}
};

TEST_F(SlowButHonestTest, WhoSendsAtTheLeastRateIsWaitedFor) {
  RawHttp2 client(server_.address());
  const uint32_t stream = BeginCall(&client, 16 * kMiB);
  const absl::Time start = absl::Now();
  // Each tenth of a second starts at its own time, however late the one before
  // it was.
  for (int tenths = 1; tenths <= 60; ++tenths) {
    client.Send(stream, std::string(kRate / 8, '\0'));
    absl::SleepFor(start + tenths * absl::Milliseconds(100) - absl::Now());
  }
  EXPECT_GT(server_.server().gauges().SumOf("convgrad_memory_used_bytes"),
            16 * kMiB);
  server_.AwaitMetric(EndedBackwards("DeadlineExceeded", 1));
  server_.ExpectNothingHeld();
}

class AnyRateTest : public SlowClientsTest {
 protected:
  static Config AnyRateConfig() {
    Config config = ShortConfig();
    config.min_client_rate = 0;
    config.default_deadline = absl::Milliseconds(500);
    return config;
  }
  AnyRateTest() : SlowClientsTest(AnyRateConfig()) {}
};

TEST_F(AnyRateTest, TheDeadlineHoldsForAMessageThatDoesNotCome) {
  const RawReply reply = CallWithoutMessage();
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(reply.trailers.field, "deadline");
  server_.ExpectNothingHeld();
}

// Tests with infinite times, so that only the share limits the attacker.
class ClientShareTest : public SlowClientsTest {
 protected:
  static Config ConfigWithTokens() {
    Config config = ShortConfig();
    config.min_client_rate = 0;
    config.token_file = absl::StrCat(testing::TempDir(), "/share.tokens");
    std::ofstream(config.token_file)
        << "attacker train attacker-attacker-attacker\n"
        << "honest train honest-honest-honest\n";
    return config;
  }
  ClientShareTest() : SlowClientsTest(ConfigWithTokens()) {}
};

TEST_F(ClientShareTest, OneClientsHalfSentMessagesLeaveRoomForOthers) {
  RawHttp2 attacker(server_.address());
  SendHalves(&attacker,
             {{"authorization", "Bearer attacker-attacker-attacker"}});
  for (int i = 0; i < 3; ++i) {
    const RawReply reply = CallRaw(
        server_.channel(), "ConvBackward", SeedBackward().SerializeAsString(),
        {{"authorization", "Bearer honest-honest-honest"},
         {"convgrad-request-bytes", absl::StrCat(kHalfSentBytes)}});
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  }
  const Readings gauges = server_.server().gauges();
  EXPECT_GT(gauges.SumOf("convgrad_memory_used_bytes"), kHalfSentBytes);
  EXPECT_LE(gauges.SumOf("convgrad_memory_used_bytes"),
            gauges.SumOf("convgrad_memory_capacity_bytes") / 2);
}

class MaxDeadlineTest : public SlowClientsTest {
 protected:
  static Config BriefConfig() {
    Config config = ShortConfig();
    config.max_deadline = absl::Milliseconds(300);
    return config;
  }
  MaxDeadlineTest() : SlowClientsTest(BriefConfig()) {}
};

TEST_F(MaxDeadlineTest, LaterDeadlinesCountAsTheLatest) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::InfiniteDuration());
  strings_.AwaitRuns(1);
  PendingCall queued(server_.stub(), absl::Hours(24));
  PendingCall default_one(server_.stub(), absl::InfiniteDuration());
  EXPECT_EQ(queued.Await(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(default_one.Await(), grpc::StatusCode::DEADLINE_EXCEEDED);
  strings_.Release();
  running.Await();
  server_.ExpectNothingHeld();
  EXPECT_EQ(strings_.runs(), 1);
}

}  // namespace
}  // namespace convgrad
