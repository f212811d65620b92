// Tests that an operation that isn't a convolution uses scheduling, memory and
// telemetry, with a call class of its own.
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "server/rpc/calls/report.h"
#include "server/rpc/calls/unary_call.h"
#include "server/telemetry/metrics_endpoint.h"
#include "tests/end_to_end/identity_operation.h"

namespace convgrad {
namespace {

// Request and response are ConvForwardResponses with one result, because this
// message carries a descriptor and bytes.
using Message = v1::ConvForwardResponse;

grpc::ByteBuffer MessageOf(const TensorDescriptor& tensor, Message head,
                           grpc::Slice bytes) {
  *head.add_results()->mutable_tensor() = EncodeTensor(tensor, 0);
  return *JoinMessage(head, {std::move(bytes)});
}

class IdentityCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

 private:
  absl::StatusOr<Request> Decode() override {
    Message head;
    ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(&head));
    ASSIGN_OR_RETURN(TensorDescriptor tensor,
                     DecodeTensor(head.results(0).tensor(), 1, "tensor"));
    operation_ = std::make_shared<IdentityOperation>(std::move(tensor));
    sample()->dtype = std::string(NameOf(operation_->dtype()));
    ASSIGN_OR_RETURN(const Router::Choice route,
                     services().router->Route(*operation_, {}));
    Request request{operation_, {}, route.backend, {}};
    request.places.operands.resize(1);
    request.places.operands[0].message =
        std::make_shared<PayloadView>(std::move(payloads[0]));
    request.places.results.resize(1);
    return request;
  }

  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<grpc::Slice> payloads) override {
    Message head;
    head.mutable_report()->set_implementation(outcome.implementation);
    return MessageOf(operation_->tensor(), std::move(head),
                     std::move(payloads[0]));
  }

  std::shared_ptr<const IdentityOperation> operation_;
};

constexpr Method kMethod = {
    "Test",
    "Identity",
    ClientRole::kInfer,
    SessionRule::kNoChange,
    "identity",
    0,
    [](const Method& method, const CallServices& services,
       grpc::GenericCallbackServerContext* context) -> Call* {
      return new IdentityCall(method, services, context);
    }};

// A server of identity operations.
class IdentityServer : public grpc::CallbackGenericService {
 public:
  explicit IdentityServer(double macs_per_second = 25e9)
      : backends_(BackendsOf(macs_per_second)),
        memory_(std::make_shared<CallMemory>(64 << 20, 8, 0,
                                             [](const auto& task) { task(); })),
        router_(backends_, {1 << 30, 0}),
        scheduler_(OneWorker(), &plans_, memory_.get()),
        sampler_(0) {
    MetricsOptions options;
    options.listen = "127.0.0.1:0";
    options.backends = {"copier"};
    options.operations = {"identity"};
    metrics_ = *MetricsEndpoint::Start(options);
    services_.observer = metrics_->observer();
    services_.memory = memory_;
    services_.lifecycle = &lifecycle_;
    services_.gate = &gate_;
    services_.client_watch = &client_watch_;
    services_.arrivals = &arrivals_;
    services_.traffic = &traffic_;
    services_.router = &router_;
    services_.scheduler = &scheduler_;
    services_.self_check_sampler = &sampler_;
    config_.max_message_bytes = 16 << 20;
    services_.config = &config_;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
  }

  ~IdentityServer() override {
    server_->Shutdown();
    lifecycle_.AwaitIdle(absl::InfiniteFuture());
    // gRPC frees the bytes of a response some time after its client has them.
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (memory_->pool.outstanding() > 0 && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_EQ(memory_->budget.used_bytes(), 0);
    EXPECT_EQ(memory_->pool.outstanding(), 0);
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    Call* call = kMethod.make(kMethod, services_, context);
    call->Begin();
    return call;
  }

  // Sends `bytes` and returns the bytes of the answer.
  std::string Send(const TensorDescriptor& tensor, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(
        &context, "/test/Identity", MessageOf(tensor, {}, bytes), &queue);
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (!status.ok()) return "";
    Message head;
    std::vector<PayloadView> payloads = *SplitMessage(&answer, &head);
    EXPECT_EQ(head.report().implementation(), "memcpy");
    std::string answered(payloads[0].size(), '\0');
    payloads[0].MoveTo(answered.data());
    return answered;
  }

  bool HasMetric(const std::string& line) const {
    return absl::StrContains(metrics_->Text(), line);
  }
  const PlanCache& plans() const { return plans_; }

 private:
  static std::vector<RegisteredBackend> BackendsOf(double macs_per_second) {
    std::vector<RegisteredBackend> backends;
    std::unique_ptr<Backend> backend =
        std::make_unique<IdentityBackend>(macs_per_second);
    backends.push_back({"copier", std::move(backend)});
    return backends;
  }

  static Scheduler::Options OneWorker() {
    Scheduler::Options options;
    options.workers.resize(1);
    return options;
  }

  const std::vector<RegisteredBackend> backends_;
  const std::shared_ptr<CallMemory> memory_;
  PlanCache plans_{1 << 20};
  Router router_;
  Scheduler scheduler_;
  SelfCheckSampler sampler_;
  std::unique_ptr<MetricsEndpoint> metrics_;
  Gate gate_;
  ClientWatch client_watch_{absl::Seconds(10), 0};
  ConnectionTraffic traffic_;
  ArrivalWatch arrivals_{&traffic_};
  Lifecycle lifecycle_;
  Config config_;
  CallServices services_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

std::string RandomBytes(int64_t size) {
  std::mt19937 random(5);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(Identity, GivesBackEveryDtypeAndLayout) {
  IdentityServer server;
  for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (Layout layout :
         {Layout::kNCX, Layout::kNXC, Layout::kOIX, Layout::kXIO}) {
      const TensorDescriptor tensor{dtype, layout, {3, 5, 7, 9}};
      const std::string bytes = RandomBytes(*ByteSize(tensor));
      EXPECT_EQ(server.Send(tensor, bytes), bytes)
          << NameOf(dtype) << " " << NameOf(layout);
    }
  }
  EXPECT_EQ(server.plans().plans(), 12);
}

TEST(Identity, IsCountedUnderItsName) {
  IdentityServer server;
  const TensorDescriptor tensor{DataType::kBF16, Layout::kNXC, {2, 3, 4}};
  const std::string bytes = RandomBytes(*ByteSize(tensor));
  server.Send(tensor, bytes);
  server.Send(tensor, bytes);
  const std::string labels =
      "{backend=\"copier\",code=\"OK\",dtype=\"bf16\",op=\"identity\"} ";
  EXPECT_TRUE(server.HasMetric("convgrad_requests_total" + labels + "2"));
  EXPECT_TRUE(
      server.HasMetric("convgrad_received_bytes_total" + labels + "96"));
  EXPECT_TRUE(server.HasMetric("convgrad_plan_cache_hits_total 1"));
}

TEST(Identity, IsCutIntoSlicesWhereItWouldTakeLong) {
  // Each item takes longer than a slice may take.
  IdentityServer server(/*macs_per_second=*/1);
  // Items have 140 bytes, whose slices aren't aligned, and 128 bytes.
  for (int64_t channels : {35, 32}) {
    const TensorDescriptor tensor{DataType::kF32, Layout::kNCX, {5, channels}};
    const std::string bytes = RandomBytes(*ByteSize(tensor));
    EXPECT_EQ(server.Send(tensor, bytes), bytes);
  }
  EXPECT_EQ(server.plans().plans(), 2);
}

}  // namespace
}  // namespace convgrad
