// Tests invalid and oversized requests over a real socket: each has one status
// and the right detail, and leaks nothing.
#include <cstdint>
#include <limits>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class RefusalsTest : public testing::Test {
 protected:
  static Config SmallConfig() {
    Config config = TestConfig();
    config.max_message_bytes = kMiB;
    return config;
  }

  RawReply Send(const google::protobuf::Message& request,
                const std::map<std::string, std::string>& metadata = {}) {
    return CallRaw(server_.channel(), "ConvBackward",
                   request.SerializeAsString(), metadata);
  }

  void ExpectRefused(const RawReply& reply, grpc::StatusCode code,
                     const std::string& reason) {
    EXPECT_EQ(reply.status.error_code(), code) << reply.status.error_message();
    EXPECT_EQ(reply.trailers.reason, reason) << reply.status.error_message();
    EXPECT_EQ(reply.trailers.pushback_ms, "") << "only a busy server has it";
    server_.ExpectNothingHeld();
    // The server still works.
    EXPECT_TRUE(Send(SeedBackward()).status.ok());
  }
  void ExpectInvalid(const RawReply& reply, const std::string& reason) {
    ExpectRefused(reply, grpc::StatusCode::INVALID_ARGUMENT, reason);
  }
  void ExpectTooLarge(const RawReply& reply) {
    ExpectRefused(reply, grpc::StatusCode::RESOURCE_EXHAUSTED,
                  "LIMIT_EXCEEDED");
  }

  // Returns a request whose output has `channels` x 2 x 2 floats.
  static v1::ConvForwardRequest WideForward(int64_t channels) {
    v1::ConvForwardRequest request = SeedForward();
    v1::ConvOperation* operation = request.mutable_operation();
    operation->mutable_problem()->set_out_channels(channels);
    operation->mutable_operands()->mutable_weight()->set_dims(0, channels);
    request.set_payloads(1, std::string(channels * 16, '\0'));
    return request;
  }

  TestServer server_{SmallConfig()};
};

TEST_F(RefusalsTest, MalformedBytes) {
  const std::string good = SeedBackward().SerializeAsString();
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff"), good.substr(0, good.size() - 1),
        std::string("\x0a\x7f"), std::string(100, '\x01'),
        std::string("\x08", 1)}) {
    ExpectInvalid(CallRaw(server_.channel(), "ConvBackward", bytes),
                  "MALFORMED");
  }
}

TEST_F(RefusalsTest, EmptyMessage) {
  const RawReply reply = CallRaw(server_.channel(), "ConvBackward", "");
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  server_.ExpectNothingHeld();
}

TEST_F(RefusalsTest, UnknownCriticalFieldIsNamed) {
  v1::ConvBackwardRequest request = SeedBackward();
  auto* problem = request.mutable_operation()->mutable_problem();
  problem->GetReflection()->MutableUnknownFields(problem)->AddVarint(77, 1);
  const RawReply reply = Send(request);
  ExpectRefused(reply, grpc::StatusCode::UNIMPLEMENTED, "UNKNOWN_FIELD");
  EXPECT_TRUE(absl::StrContains(reply.status.error_message(), "77"));
}

TEST_F(RefusalsTest, UnknownFieldFrom100IsIgnored) {
  v1::ConvBackwardRequest request = SeedBackward();
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(100, 1);
  EXPECT_TRUE(Send(request).status.ok());
}

TEST_F(RefusalsTest, DetailNamesFieldFoundAndExpected) {
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_operation()->mutable_operands()->mutable_weight()->set_dims(
      2, 3);
  const RawReply reply = Send(request);
  ExpectInvalid(reply, "SHAPE_MISMATCH");
  EXPECT_EQ(reply.trailers.field, "operation.operands.weight.dims");
  EXPECT_EQ(reply.trailers.found, "[1,1,3,2]");
  EXPECT_EQ(reply.trailers.expected, "[1,1,2,2]");
  for (const std::string& part :
       {reply.trailers.field, reply.trailers.found, reply.trailers.expected}) {
    EXPECT_TRUE(absl::StrContains(reply.status.error_message(), part)) << part;
  }
}

TEST_F(RefusalsTest, PayloadOfAnotherSize) {
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_payloads(0)->pop_back();
  ExpectInvalid(Send(request), "BYTE_COUNT_MISMATCH");
}

TEST_F(RefusalsTest, EmptyResultList) {
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_operation()->clear_results();
  ExpectInvalid(Send(request), "MISSING");
}

TEST_F(RefusalsTest, MoreThanDeclared) {
  const RawReply reply =
      Send(SeedBackward(), {{"convgrad-request-bytes", "67"}});
  ExpectInvalid(reply, "BYTE_COUNT_MISMATCH");
  EXPECT_TRUE(absl::StrContains(reply.status.error_message(), "68 bytes"));
  EXPECT_TRUE(absl::StrContains(reply.status.error_message(), "67"));
}

TEST_F(RefusalsTest, ExactlyAsDeclaredIsFine) {
  EXPECT_TRUE(
      Send(SeedBackward(), {{"convgrad-request-bytes", "68"}}).status.ok());
}

TEST_F(RefusalsTest, GarbageDeclarationCountsAsNone) {
  for (const char* value : {"", "-1", "x", "99999999999999999999", "1 2"}) {
    EXPECT_TRUE(
        Send(SeedBackward(), {{"convgrad-request-bytes", value}}).status.ok())
        << value;
  }
}

TEST_F(RefusalsTest, DeclaredBeyondTheLimitIsRefusedUnread) {
  for (const int64_t bytes : {kMiB + 1, std::numeric_limits<int64_t>::max()}) {
    const std::string declared = absl::StrCat(bytes);
    const RawReply reply =
        Send(SeedBackward(), {{"convgrad-request-bytes", declared}});
    ExpectTooLarge(reply);
    EXPECT_TRUE(absl::StrContains(reply.status.error_message(), declared));
    EXPECT_TRUE(
        absl::StrContains(reply.status.error_message(), absl::StrCat(kMiB)));
  }
}

TEST_F(RefusalsTest, UndeclaredBeyondTheLimitNamesBoth) {
  v1::ConvBackwardRequest request = SeedBackward();
  request.set_payloads(0, std::string(kMiB, 'x'));
  const RawReply reply = Send(request);
  ExpectTooLarge(reply);
  EXPECT_TRUE(
      absl::StrContains(reply.status.error_message(), absl::StrCat(kMiB + 32)));
}

TEST_F(RefusalsTest, FarBeyondTheLimitNamesBoth) {
  v1::ConvBackwardRequest request = SeedBackward();
  // The message is also larger than a stream's frame may be.
  request.set_payloads(0, std::string(6 * kMiB, 'x'));
  const RawReply reply = Send(request);
  ExpectTooLarge(reply);
  EXPECT_TRUE(absl::StrContains(reply.status.error_message(),
                                absl::StrCat(6 * kMiB + 32)))
      << reply.status.error_message();
  server_.ExpectNothingHeld();
  server_.AwaitMetric(
      "convgrad_requests_total{backend=\"none\",code=\"ResourceExhausted\","
      "dtype=\"none\",op=\"backward\"} 1");
  EXPECT_TRUE(Send(SeedBackward()).status.ok());
}

TEST_F(RefusalsTest, ResponseBeyondTheLimit) {
  // The output has 60,000 x 4 floats, for a message of 60,000 x 2.
  v1::ConvForwardRequest request = WideForward(60000);
  v1::ConvOperation* operation = request.mutable_operation();
  operation->mutable_problem()->set_kernel(0, 1);
  operation->mutable_operands()->mutable_weight()->set_dims(2, 1);
  operation->mutable_operands()->mutable_weight()->set_dims(3, 1);
  request.set_payloads(1, std::string(60000 * 4, '\0'));
  const RawReply reply =
      CallRaw(server_.channel(), "ConvForward", request.SerializeAsString());
  ExpectTooLarge(reply);
  EXPECT_EQ(reply.trailers.field, "response");
}

TEST_F(RefusalsTest, FeaturesThatAreNotBuilt) {
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_operation()->mutable_results(0)->set_store(
      v1::ResultRequest::STORE_ADD);
  ExpectRefused(Send(request), grpc::StatusCode::UNIMPLEMENTED, "UNSUPPORTED");
}

TEST_F(RefusalsTest, BackendThatIsNotThere) {
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_options()->set_backend(v1::BACKEND_CHOICE_CUDA);
  ExpectRefused(Send(request), grpc::StatusCode::FAILED_PRECONDITION,
                "BACKEND_UNAVAILABLE");
}

TEST_F(RefusalsTest, MethodThatIsNotThere) {
  for (const char* method :
       {"ConvSideways", "/convgrad.v1.Other/ConvForward", "/x"}) {
    const RawReply reply = CallRaw(server_.channel(), method, "");
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(RefusalsTest, CallWithoutAMessage) {
  // A unary stub can't send no message, so the test opens a stream and closes
  // it at once.
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(server_.channel());
  const auto call =
      stub.PrepareCall(&context, "/convgrad.v1.ConvGrad/ConvForward", &queue);
  void* tag;
  bool ok;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  call->WritesDone(nullptr);
  queue.Next(&tag, &ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
      << status.error_message();
  server_.ExpectNothingHeld();
}

TEST_F(RefusalsTest, CompressedMessages) {
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::ConvBackwardResponse response;
  v1::ConvBackwardRequest request = SeedBackward();
  request.set_payloads(0, std::string(100000, 'x'));
  const grpc::Status status =
      server_.stub().ConvBackward(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED)
      << status.error_message();
}

TEST(Limits, WorkMemoryAndReferenceAreBounded) {
  Config config = TestConfig();
  config.backends = "reference";
  config.max_macs = 20;
  config.max_reference_macs = 15;
  config.memory_budget_bytes = 66 * kMiB;
  config.buffer_pool_idle_bytes = 0;
  config.plan_cache_bytes = 0;
  config.weight_cache_bytes = 0;
  config.max_message_bytes = kMiB / 2;
  TestServer server(config);
  const auto send = [&server](const v1::ConvForwardRequest& request) {
    return CallRaw(server.channel(), "ConvForward",
                   request.SerializeAsString());
  };
  v1::ConvForwardRequest request = SeedForward();  // 16 multiply-adds.
  RawReply reply = send(request);
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED");
  request.mutable_operation()->mutable_problem()->add_pad_begin(1);
  reply = send(request);
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED");
  EXPECT_EQ(reply.trailers.pushback_ms, "");
  server.ExpectNothingHeld();
}

TEST(Limits, BusyQueueAsksForARetry) {
  Config config = TestConfig();
  config.queue_capacity = 1;
  config.max_message_bytes = kMiB;
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  TestServer server(config, std::move(backends));
  strings.HoldRuns();
  const v1::ConvBackwardRequest request = SeedBackward();
  const auto start = [&](std::vector<std::thread>& threads) {
    threads.emplace_back([&] {
      grpc::ClientContext context;
      v1::ConvBackwardResponse response;
      EXPECT_TRUE(
          server.stub().ConvBackward(&context, request, &response).ok());
    });
  };
  std::vector<std::thread> threads;
  start(threads);
  strings.AwaitRuns(1);
  start(threads);
  while (server.server().gauges().SumOf("convgrad_queue_depth") < 1)
    std::this_thread::yield();
  const RawReply reply =
      CallRaw(server.channel(), "ConvBackward", request.SerializeAsString());
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.trailers.reason, "BUSY");
  EXPECT_GT(std::stoi(reply.trailers.pushback_ms), 0);
  strings.Release();
  for (std::thread& thread : threads) thread.join();
  server.ExpectNothingHeld();
}

TEST(Limits, TooManyWaitersAreAskedToRetry) {
  Config config = TestConfig();
  config.max_admission_waiters = 0;
  config.buffer_pool_idle_bytes = 0;
  config.plan_cache_bytes = 0;
  config.weight_cache_bytes = 0;
  config.max_message_bytes = 24 * kMiB;  // 51 of 64 MiB.
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  TestServer server(config, std::move(backends));
  strings.HoldRuns();
  std::thread holder([&] {
    // While it runs, the call holds the 16 MiB that it sent.
    v1::ConvForwardRequest request = SeedForward();
    v1::ConvOperation* operation = request.mutable_operation();
    operation->mutable_problem()->set_input_dims(0, 1 << 19);
    operation->mutable_operands()->mutable_input()->set_dims(0, 1 << 19);
    request.set_payloads(0, std::string(size_t{36} << 19, '\0'));
    grpc::ClientContext context;
    v1::ConvForwardResponse response;
    EXPECT_TRUE(server.stub().ConvForward(&context, request, &response).ok());
  });
  strings.AwaitRuns(1);
  const RawReply reply = CallRaw(server.NewChannel(), "ConvBackward",
                                 SeedBackward().SerializeAsString());
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.trailers.reason, "BUSY");
  EXPECT_NE(reply.trailers.pushback_ms, "");
  // A call that declares its small size is admitted.
  strings.Release();
  EXPECT_TRUE(CallRaw(server.NewChannel(), "ConvBackward",
                      SeedBackward().SerializeAsString(),
                      {{"convgrad-request-bytes", "68"}})
                  .status.ok());
  holder.join();
  server.ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad
