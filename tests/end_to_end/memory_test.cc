// Tests many clients that each send a message of the largest size. The server
// admits as many as its budget allows, and the process stays within the budget.
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "proto/codec/payload_message.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kBatch = 8192;
constexpr int64_t kMessageBytes = 32 * kMiB + 4;
constexpr int64_t kBudgetBytes = 256 * kMiB;
constexpr int kConnections = 64;

// Returns a request for grad_input, which is as large as grad_output: 32 MiB
// in, 32 MiB out.
v1::ConvBackwardRequest LargeHead() {
  v1::ConvBackwardRequest request = SeedBackward();
  request.clear_payloads();
  v1::ConvOperation* operation = request.mutable_operation();
  v1::ConvProblem* problem = operation->mutable_problem();
  problem->clear_input_dims();
  for (int64_t dim : {kBatch, int64_t{1}, int64_t{32}, int64_t{32}}) {
    problem->add_input_dims(dim);
  }
  problem->set_kernel(0, 1);
  v1::Operands* operands = operation->mutable_operands();
  operands->clear_input();
  *operands->mutable_grad_output()->mutable_dims() = problem->input_dims();
  operands->mutable_grad_output()->mutable_inline_()->set_payload_index(0);
  operands->mutable_weight()->set_dims(2, 1);
  operands->mutable_weight()->set_dims(3, 1);
  operation->mutable_results()->RemoveLast();
  return request;
}

// Sends one message on its own connection, without a copy of `payload`.
RawReply SendLarge(const std::string& address,
                   const std::shared_ptr<const std::string>& payload,
                   const std::string& declared) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  grpc::GenericStub stub(grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  // gRPC 1.51 sometimes treats a connection in progress as failed, because it
  // reads a stale errno (https://github.com/grpc/grpc/pull/35064). Calls that
  // wait for the connection try again.
  context.set_wait_for_ready(true);
  if (!declared.empty()) {
    context.AddMetadata("convgrad-request-bytes", declared);
  }
  const float weight = 2;
  const auto message = JoinMessage(
      LargeHead(), {SliceOver(payload->data(), payload->size(), payload),
                    grpc::Slice(&weight, sizeof(weight))});
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(
      &context, "/convgrad.v1.ConvGrad/ConvBackward", *message, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  RawReply reply;
  call->Finish(&response, &reply.status, &queue);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  reply.trailers = TrailersOf(context);
  if (reply.status.ok()) {
    v1::ConvBackwardResponse head;
    const auto payloads = SplitMessage(&response, &head);
    EXPECT_TRUE(payloads.ok()) << payloads.status();
    EXPECT_EQ(payloads->at(0).size(), 32 * kMiB);
  }
  return reply;
}

// Makes all connections send at once to a new server, and returns the answers.
std::vector<RawReply> Storm(const std::string& declared) {
  ChildServer server({absl::StrCat("--memory_budget_bytes=", kBudgetBytes),
                      absl::StrCat("--max_message_bytes=", kMessageBytes),
                      "--threads_per_worker=1"});
  const int64_t idle = server.MemoryBytes("VmRSS");
  const auto payload = std::make_shared<const std::string>(32 * kMiB, '\0');
  std::vector<std::thread> clients;
  std::vector<RawReply> replies(kConnections);
  for (RawReply& reply : replies) {
    clients.emplace_back([&reply, &server, &payload, &declared] {
      reply = SendLarge(server.address(), payload, declared);
    });
  }
  for (std::thread& client : clients) client.join();
  const int64_t peak = server.MemoryBytes("VmHWM");
  std::cout << "idle " << idle / kMiB << " MiB, peak " << peak / kMiB
            << " MiB, budget " << kBudgetBytes / kMiB << " MiB\n";
  EXPECT_LE(peak, kBudgetBytes);
  // gRPC frees the bytes of a response some time after its client has them.
  server.AwaitMetric("convgrad_memory_used_bytes 0");
  server.AwaitMetric("convgrad_buffers 0");
  const auto channel =
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(
      CallRaw(channel, "ConvBackward", SeedBackward().SerializeAsString())
          .status.ok());
  return replies;
}

void ExpectAnsweredOrAskedToRetry(const std::vector<RawReply>& replies) {
  int answered = 0;
  for (const RawReply& reply : replies) {
    if (reply.status.ok()) {
      ++answered;
      continue;
    }
    EXPECT_EQ(reply.trailers.reason, "BUSY") << reply.status.error_message();
    EXPECT_NE(reply.trailers.pushback_ms, "");
  }
  EXPECT_GT(answered, 0);
  std::cout << answered << " of " << kConnections << " answered\n";
}

TEST(Memory, ManyMessagesOfTheLimitStayWithinTheBudget) {
  ExpectAnsweredOrAskedToRetry(Storm(""));
}

TEST(Memory, DeclaredMessagesOfTheLimitStayWithinTheBudget) {
  ExpectAnsweredOrAskedToRetry(Storm(absl::StrCat(kMessageBytes)));
}

TEST(Memory, LiarsDoNotGrowTheProcess) {
  for (const RawReply& reply : Storm("0")) EXPECT_FALSE(reply.status.ok());
}

}  // namespace
}  // namespace convgrad
