// Tests calls that end before their work, by deadline or cancellation, at every
// stage of the call.
#include <functional>
#include <thread>

#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/pending_call.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Config TightConfig() {
  Config config = TestConfig();
  config.buffer_pool_idle_bytes = 0;
  config.plan_cache_bytes = 0;
  config.weight_cache_bytes = 0;
  // One undeclared call takes 51 of 64 MiB.
  config.max_message_bytes = 24 * kMiB;
  return config;
}

class DeadlinesTest : public testing::Test {
 protected:
  explicit DeadlinesTest(const Config& config = TightConfig())
      : server_(config, Puppets()) {}

  std::vector<RegisteredBackend> Puppets() {
    std::vector<RegisteredBackend> backends;
    backends.push_back(RegisteredPuppet("puppet", &strings_));
    return backends;
  }
  void AwaitGauges(const std::function<bool(const Readings&)>& reached) {
    while (!reached(server_.server().gauges())) std::this_thread::yield();
  }
  void AwaitQueued() {
    AwaitGauges(
        [](const Readings& g) { return g.SumOf("convgrad_queue_depth") == 1; });
  }
  void AwaitWaiter() {
    AwaitGauges([](const Readings& g) {
      return g.SumOf("convgrad_admission_waiters") == 1;
    });
  }
  // Returns a request whose operands fill most of the budget while it runs.
  static v1::ConvBackwardRequest LargeRequest() {
    v1::ConvBackwardRequest request = SeedBackwardOf(int64_t{16} * kMiB / 36);
    // 23 MiB of request; the response has only grad_weight.
    request.mutable_operation()->mutable_results()->DeleteSubrange(0, 1);
    return request;
  }

  PuppetStrings strings_;
  TestServer server_;
};

TEST_F(DeadlinesTest, DeadlineInTheQueue) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::InfiniteDuration());
  strings_.AwaitRuns(1);
  PendingCall queued(server_.stub(), absl::Milliseconds(100));
  EXPECT_EQ(queued.Await(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The call leaves the queue long before the worker is free.
  AwaitGauges(
      [](const Readings& g) { return g.SumOf("convgrad_queue_depth") == 0; });
  strings_.Release();
  EXPECT_EQ(running.Await(), grpc::StatusCode::OK);
  server_.ExpectNothingHeld();
  EXPECT_EQ(strings_.runs(), 1);
}

TEST_F(DeadlinesTest, CancelledInTheQueue) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::InfiniteDuration());
  strings_.AwaitRuns(1);
  PendingCall queued(server_.stub(), absl::InfiniteDuration());
  AwaitQueued();
  queued.Cancel();
  EXPECT_EQ(queued.Await(), grpc::StatusCode::CANCELLED);
  AwaitGauges(
      [](const Readings& g) { return g.SumOf("convgrad_queue_depth") == 0; });
  strings_.Release();
  EXPECT_EQ(running.Await(), grpc::StatusCode::OK);
  server_.ExpectNothingHeld();
  EXPECT_EQ(strings_.runs(), 1);
}

TEST_F(DeadlinesTest, CancelledWhileRunning) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::InfiniteDuration());
  strings_.AwaitRuns(1);
  running.Cancel();
  EXPECT_EQ(running.Await(), grpc::StatusCode::CANCELLED);
  strings_.Release();
  // The server may hear of the cancellation before or after the run ends. In
  // both cases it counts one call and frees everything.
  server_.AwaitMetric(
      "grpc_server_handling_seconds_count{grpc_method=\"ConvBackward\","
      "grpc_service=\"convgrad.v1.ConvGrad\",grpc_type=\"unary\"} 1");
  server_.ExpectNothingHeld();
}

TEST_F(DeadlinesTest, DeadlineBeforeAdmission) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::InfiniteDuration(), LargeRequest());
  strings_.AwaitRuns(1);
  PendingCall waiting(server_.stub(), absl::Milliseconds(100));
  EXPECT_EQ(waiting.Await(), grpc::StatusCode::DEADLINE_EXCEEDED);
  AwaitGauges([](const Readings& g) {
    return g.SumOf("convgrad_admission_waiters") == 0;
  });
  strings_.Release();
  EXPECT_EQ(running.Await(), grpc::StatusCode::OK);
  server_.ExpectNothingHeld();
}

TEST_F(DeadlinesTest, CancelledBeforeAdmission) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::InfiniteDuration(), LargeRequest());
  strings_.AwaitRuns(1);
  PendingCall waiting(server_.stub(), absl::InfiniteDuration());
  AwaitWaiter();
  waiting.Cancel();
  EXPECT_EQ(waiting.Await(), grpc::StatusCode::CANCELLED);
  AwaitGauges([](const Readings& g) {
    return g.SumOf("convgrad_admission_waiters") == 0;
  });
  strings_.Release();
  EXPECT_EQ(running.Await(), grpc::StatusCode::OK);
  server_.ExpectNothingHeld();
}

TEST_F(DeadlinesTest, CancelledWhileSending) {
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(server_.channel());
  const auto call =
      stub.PrepareCall(&context, "/convgrad.v1.ConvGrad/ConvBackward", &queue);
  void* tag;
  bool ok;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  // The call is admitted, and no message comes.
  AwaitGauges([](const Readings& g) {
    return g.SumOf("convgrad_memory_used_bytes") > 0;
  });
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  server_.AwaitMetric(
      "convgrad_requests_total{backend=\"none\",code=\"Canceled\","
      "dtype=\"none\",op=\"backward\"} 1");
  server_.ExpectNothingHeld();
}

TEST_F(DeadlinesTest, AdmittedWhenMemoryIsFree) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::InfiniteDuration(), LargeRequest());
  strings_.AwaitRuns(1);
  PendingCall waiting(server_.stub(), absl::InfiniteDuration());
  AwaitWaiter();
  strings_.Release();
  EXPECT_EQ(running.Await(), grpc::StatusCode::OK);
  EXPECT_EQ(waiting.Await(), grpc::StatusCode::OK);
  server_.ExpectNothingHeld();
}

class DefaultDeadlineTest : public DeadlinesTest {
 protected:
  static Config ImpatientConfig() {
    Config config = TightConfig();
    config.default_deadline = absl::Milliseconds(300);
    return config;
  }
  DefaultDeadlineTest() : DeadlinesTest(ImpatientConfig()) {}
};

TEST_F(DefaultDeadlineTest, HoldsForCallsWithoutOne) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), absl::Minutes(5), LargeRequest());
  strings_.AwaitRuns(1);
  PendingCall waiting(server_.stub(), absl::InfiniteDuration());
  EXPECT_EQ(waiting.Await(), grpc::StatusCode::DEADLINE_EXCEEDED);
  strings_.Release();
  EXPECT_EQ(running.Await(), grpc::StatusCode::OK);
  strings_.HoldRuns();
  PendingCall next(server_.stub(), absl::Minutes(5));
  strings_.AwaitRuns(2);
  PendingCall queued(server_.stub(), absl::InfiniteDuration());
  EXPECT_EQ(queued.Await(), grpc::StatusCode::DEADLINE_EXCEEDED);
  strings_.Release();
  EXPECT_EQ(next.Await(), grpc::StatusCode::OK);
  server_.ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad
