// Tests first runs that need the plan of their program before anything else.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/memory/admission.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/network_client.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

std::vector<RegisteredBackend> PuppetOf(PuppetStrings* strings) {
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", strings));
  return backends;
}

// More calls than gRPC has threads on any machine.
constexpr int kCalls = 20;

class FirstRunsTest : public testing::Test {
 protected:
  explicit FirstRunsTest(const Config& config = TestConfig())
      : server_(config, PuppetOf(&strings_)), client_(server_.channel()) {
    EXPECT_TRUE(
        client_.Load("net", "input x\ny = relu(x)\noutput y\n").status.ok());
  }

  // Returns a run that reports its groups. Those of other `size` have plans of
  // their own.
  static v1::RunProgramRequest RunOf(int64_t size) {
    v1::RunProgramRequest request;
    request.set_program("net");
    request.set_report_groups(true);
    AddValue("x", {1, size}, std::vector<float>(size), request.mutable_inputs(),
             &request);
    return request;
  }

  // Starts kCalls runs at once, and makes another call while a plan is made.
  void RunWhilePlanning(const std::function<int64_t(int)>& size_of) {
    strings_.HoldPlans();
    std::atomic<int> ended = 0;
    std::vector<std::thread> runs;
    for (int i = 0; i < kCalls; ++i) {
      runs.emplace_back([&, i] {
        const auto reply = client_.Infer(RunOf(size_of(i)));
        EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
        ++ended;
      });
    }
    // All calls are admitted and none has ended, unless one was refused.
    while (server_.server().gauges().SumOf("convgrad_memory_used_bytes") <
               kCalls * kCallOverheadBytes &&
           ended == 0) {
      std::this_thread::yield();
    }
    grpc::ClientContext context;
    v1::GetCapabilitiesResponse capabilities;
    EXPECT_TRUE(
        server_.stub().GetCapabilities(&context, {}, &capabilities).ok());
    strings_.Release();
    for (std::thread& run : runs) run.join();
  }

  PuppetStrings strings_;
  TestServer server_;
  NetworkClient client_;
};

TEST_F(FirstRunsTest, OfOneProgramShareItsPlan) {
  RunWhilePlanning([](int) { return 1; });
  EXPECT_EQ(strings_.plans(), 1);
}

TEST_F(FirstRunsTest, OfManyProgramsWaitForEachOther) {
  RunWhilePlanning([](int i) { return i + 1; });
  EXPECT_EQ(strings_.plans(), kCalls);
}

TEST_F(FirstRunsTest, EndAtTheirDeadline) {
  const auto held = [this] {
    return server_.server().gauges().SumOf("convgrad_memory_used_bytes");
  };
  const int64_t held_before = held();
  strings_.HoldPlans();
  std::thread maker([&] { EXPECT_TRUE(client_.Infer(RunOf(1)).status.ok()); });
  strings_.AwaitPlans(1);
  const v1::RunProgramRequest request = RunOf(1);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
  AddTo(&context, {client_.session().id()});
  context.AddMetadata(kRequestBytesKey, std::to_string(request.ByteSizeLong()));
  v1::RunProgramResponse response;
  EXPECT_EQ(
      client_.stub().RunProgram(&context, request, &response).error_code(),
      grpc::StatusCode::DEADLINE_EXCEEDED);
  strings_.Release();
  maker.join();
  while (held() != held_before) std::this_thread::yield();
}

class DrainedFirstRunsTest : public FirstRunsTest {
 protected:
  static Config ConfigOf() {
    Config config = TestConfig();
    config.drain_delay = absl::ZeroDuration();
    config.drain_timeout = absl::Milliseconds(200);
    return config;
  }
  DrainedFirstRunsTest() : FirstRunsTest(ConfigOf()) {}
};

TEST_F(DrainedFirstRunsTest, CountAsWorkThatIsLeft) {
  strings_.HoldPlans();
  std::thread maker([&] { client_.Infer(RunOf(1)); });
  strings_.AwaitPlans(1);
  EXPECT_FALSE(server_.server().Drain());
  strings_.Release();
  maker.join();
}

class UncachedFirstRunsTest : public FirstRunsTest {
 protected:
  static Config ConfigOf() {
    Config config = TestConfig();
    config.plan_cache_bytes = 0;
    return config;
  }
  UncachedFirstRunsTest() : FirstRunsTest(ConfigOf()) {}
};

TEST_F(UncachedFirstRunsTest, PlanAgain) {
  EXPECT_TRUE(client_.Infer(RunOf(1)).status.ok());
  EXPECT_EQ(strings_.plans(), 2);
}

class SharedFirstRunsTest : public FirstRunsTest {
 protected:
  // One operation on the network fits into a client's share, two don't.
  static Config ConfigOf() {
    Config config = TestConfig();
    const Config complete = WithDefaults(config, ReadMachine());
    config.max_client_share =
        1.5 * kOperationBytes / static_cast<double>(complete.CallBudgetBytes());
    return config;
  }
  SharedFirstRunsTest() : FirstRunsTest(ConfigOf()) {}

  static constexpr int kSteps = 4000;
  static constexpr double kOperationBytes = kSteps * 450.0;
};

TEST_F(SharedFirstRunsTest, CountInTheShareOfTheirClient) {
  std::string text = "input x\n";
  for (int i = 0; i < kSteps; ++i) {
    absl::StrAppend(&text, "v", i, " = relu(",
                    i == 0 ? "x" : absl::StrCat("v", i - 1), ")\n");
  }
  absl::StrAppend(&text, "output v", kSteps - 1, "\n");
  ASSERT_TRUE(client_.Load("long", text).status.ok());
  v1::RunProgramRequest request = RunOf(1);
  request.set_program("long");
  request.clear_report_groups();
  strings_.HoldRuns();
  std::thread first([&] { EXPECT_TRUE(client_.Infer(request).status.ok()); });
  strings_.AwaitRuns(1);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
  AddTo(&context, {client_.session().id()});
  context.AddMetadata(kRequestBytesKey, std::to_string(request.ByteSizeLong()));
  v1::RunProgramResponse response;
  const grpc::Status second =
      client_.stub().RunProgram(&context, request, &response);
  const Trailers trailers = TrailersOf(context);
  EXPECT_EQ(trailers.reason, "BUSY") << second.error_message();
  EXPECT_TRUE(absl::StrContains(trailers.expected, "max_client_share"))
      << trailers.expected;
  strings_.Release();
  first.join();
}

}  // namespace
}  // namespace convgrad
