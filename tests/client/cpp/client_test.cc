// Tests the client against a generated protobuf service in this process.
#include "client/cpp/client.h"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "backends/core/mutex.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "convgrad/v1/error.pb.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_context.h"
#include "gtest/gtest.h"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

// `FakeService` answers as its handler decides.
class FakeService final : public v1::ConvGrad::Service {
 public:
  using Handler = std::function<grpc::Status(grpc::ServerContext*,
                                             const v1::ConvBackwardRequest&,
                                             v1::ConvBackwardResponse*)>;

  grpc::Status ConvBackward(grpc::ServerContext* context,
                            const v1::ConvBackwardRequest* request,
                            v1::ConvBackwardResponse* response) override {
    MutexLock lock(&mutex_);
    return handler_(context, *request, response);
  }
  grpc::Status GetCapabilities(grpc::ServerContext*,
                               const v1::GetCapabilitiesRequest*,
                               v1::GetCapabilitiesResponse* response) override {
    response->set_workers(3);
    return grpc::Status::OK;
  }

  // The lock shows ThreadSanitizer the order that gRPC's threads keep.
  void SetHandler(Handler handler) {
    MutexLock lock(&mutex_);
    handler_ = std::move(handler);
  }
  // Held while a handler runs.
  Mutex* mutex() { return &mutex_; }

 private:
  Mutex mutex_;
  Handler handler_ ABSL_GUARDED_BY(mutex_);
};

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    client_ = *Client::Connect({address_});

    ConvOperation& operation = call_.operation;
    operation.direction = Direction::kBackward;
    operation.problem = *Parse("linear_n3_c5_o7");
    operation.operand(Operand::kWeight) =
        TensorDescriptor{DataType::kF32, Layout::kOIX, {7, 5}, 0, 1};
    operation.operand(Operand::kGradOutput) =
        TensorDescriptor{DataType::kF32, Layout::kNCX, {3, 7}, 0, 1};
    operation.results = {
        {Result::kGradInput, {DataType::kF32, Layout::kNCX, {3, 5}, 0, 1}, 1}};
    Lend(Operand::kWeight, weight_);
    Lend(Operand::kGradOutput, grad_output_);
    call_.deadline = absl::Now() + absl::Seconds(30);
    service_.SetHandler([](auto*, const auto& request, auto* response) {
      return Answer(request, response);
    });
  }
  ~ClientTest() override { server_->Shutdown(); }

  void Lend(Operand operand, const std::vector<float>& values) {
    call_.operands[static_cast<size_t>(operand)] =
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                            values.size() * sizeof(float));
  }

  // Answers with 15 floats; float i is i.
  static grpc::Status Answer(const v1::ConvBackwardRequest& request,
                             v1::ConvBackwardResponse* response) {
    auto* named = response->add_results();
    named->set_which(request.operation().results(0).which());
    *named->mutable_tensor() =
        EncodeTensor({DataType::kF32, Layout::kNCX, {3, 5}, 0, 1}, 0);
    std::string* payload = response->add_payloads();
    for (int i = 0; i < 15; ++i) {
      const float value = static_cast<float>(i);
      payload->append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    response->mutable_report()->set_backend("fake");
    return grpc::Status::OK;
  }

  // Returns a client that retries soon.
  std::unique_ptr<Client> PersistentClient() const {
    RetryPolicy retries;
    retries.max_attempts = 5;
    retries.initial = absl::Milliseconds(1);
    ClientOptions options;
    options.server = address_;
    options.retries = retries;
    return *Client::Connect(options);
  }

  std::vector<std::string> ids() {
    MutexLock lock(service_.mutex());
    return ids_;
  }

  // Makes the service fail `failures` times with `code`, with a pushback if
  // there is one. Records the ids of all requests.
  void FailAtFirst(int failures, grpc::StatusCode code,
                   const std::string& pushback) {
    service_.SetHandler(
        [this, failures, code, pushback](grpc::ServerContext* context,
                                         const auto& request, auto* response) {
          ids_.push_back(request.options().request_id());
          if (std::ssize(ids_) > failures) return Answer(request, response);
          if (!pushback.empty()) {
            context->AddTrailingMetadata("grpc-retry-pushback-ms", pushback);
          }
          return grpc::Status(code, "not now");
        });
  }

  FakeService service_;
  std::string address_;
  std::vector<std::string> ids_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  std::vector<float> weight_ = std::vector<float>(35, 2.0f);
  std::vector<float> grad_output_ = std::vector<float>(21, 3.0f);
  OperationCall call_;
};

TEST_F(ClientTest, SendsWhatAStockServiceReads) {
  v1::ConvBackwardRequest seen;
  std::string declared;
  service_.SetHandler(
      [&](grpc::ServerContext* context, const auto& request, auto* response) {
        seen = request;
        const auto& metadata = context->client_metadata();
        const auto entry = metadata.find("convgrad-request-bytes");
        if (entry != metadata.end()) {
          declared.assign(entry->second.data(), entry->second.size());
        }
        return Answer(request, response);
      });
  call_.backend = "reference";
  ASSERT_TRUE(client_->Run(call_).ok());
  // So that this thread may read what the handler wrote.
  service_.SetHandler(nullptr);
  EXPECT_EQ(declared, std::to_string(seen.ByteSizeLong()));
  EXPECT_EQ(seen.options().backend(), v1::BACKEND_CHOICE_REFERENCE);
  EXPECT_EQ(seen.options().request_id().size(), 16u);
  ASSERT_EQ(seen.payloads_size(), 2);
  EXPECT_EQ(seen.payloads(0).size(), 35 * sizeof(float));
  EXPECT_EQ(seen.payloads(1),
            std::string(reinterpret_cast<const char*>(grad_output_.data()),
                        21 * sizeof(float)));
  EXPECT_TRUE(
      DecodeOperation(seen.operation(), Direction::kBackward, {140, 84}).ok());
}

TEST_F(ClientTest, ReturnsResultsAlignedWithReport) {
  const auto reply = client_->Run(call_);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->report.backend(), "fake");
  EXPECT_GT(reply->elapsed, absl::ZeroDuration());
  ASSERT_EQ(reply->results.size(), 1u);
  const OperationResult& result = reply->results[0];
  EXPECT_EQ(result.which, Result::kGradInput);
  ASSERT_EQ(result.data.size(), 60);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(result.data.data()) % 64, 0u);
  float last;
  std::memcpy(&last, result.data.data() + 56, sizeof(last));
  EXPECT_EQ(last, 14);
}

TEST_F(ClientTest, PutsResultsWhereTheCallerWantsThem) {
  std::vector<float> grad_input(15, -1);
  call_.destinations = {absl::MakeSpan(
      reinterpret_cast<std::byte*>(grad_input.data()), 15 * sizeof(float))};
  const auto reply = client_->Run(call_);
  ASSERT_TRUE(reply.ok()) << reply.status();
  for (int i = 0; i < 15; ++i) {
    EXPECT_EQ(grad_input[i], static_cast<float>(i));
  }
  EXPECT_EQ(reply->results[0].bytes.data(), call_.destinations[0].data());
  EXPECT_EQ(reply->results[0].data.size(), 0);
  call_.destinations[0].remove_suffix(1);
  EXPECT_EQ(client_->Run(call_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, DecodesTheServersErrorDetail) {
  service_.SetHandler([](grpc::ServerContext* context, const auto&, auto*) {
    v1::ErrorDetail detail;
    detail.set_reason("LIMIT_EXCEEDED");
    detail.set_field("operation.problem");
    detail.set_found("many");
    detail.set_expected("few");
    context->AddTrailingMetadata("convgrad-error-bin",
                                 detail.SerializeAsString());
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many");
  });
  const absl::Status status = client_->Run(call_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "too many");
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kLimitExceeded);
  EXPECT_EQ(detail->field, "operation.problem");
  EXPECT_EQ(detail->expected, "few");
}

TEST_F(ClientTest, RefusesOperandsOfAnotherSizeBeforeSending) {
  weight_.resize(34);
  Lend(Operand::kWeight, weight_);
  const auto detail = DetailOf(client_->Run(call_).status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->field, "operands.weight");
}

TEST_F(ClientTest, RefusesABackendThatTheProtocolDoesNotHave) {
  call_.backend = "onednnn";
  for (const auto& reply :
       {client_->Run(call_), client_->RunStreamed(call_, 1)}) {
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
    ASSERT_TRUE(DetailOf(reply.status())) << reply.status();
    EXPECT_EQ(DetailOf(reply.status())->field, "options.backend");
    EXPECT_EQ(DetailOf(reply.status())->found, "'onednnn'");
  }
}

// gRPC takes a time before 1970 for no deadline.
TEST_F(ClientTest, EndsACallWhoseDeadlineIsBefore1970) {
  for (const absl::Time deadline :
       {absl::InfinitePast(), absl::UnixEpoch() - absl::Hours(1)}) {
    call_.deadline = deadline;
    EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Run(call_).status()));
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(client_->Capabilities(deadline).status()));
  }
}

TEST_F(ClientTest, RefusesRepliesThatDoNotFit) {
  const auto expect_refused = [&](auto spoil) {
    service_.SetHandler([spoil](auto*, const auto& request, auto* response) {
      grpc::Status status = Answer(request, response);
      spoil(response);
      return status;
    });
    const absl::Status status = client_->Run(call_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_TRUE(DetailOf(status).has_value()) << status;
  };
  expect_refused([](auto* r) { r->clear_results(); });
  expect_refused([](auto* r) { r->mutable_payloads(0)->pop_back(); });
  expect_refused([](auto* r) { r->clear_payloads(); });
  expect_refused(
      [](auto* r) { r->mutable_results(0)->mutable_tensor()->set_dims(0, 4); });
  expect_refused([](auto* r) {
    r->mutable_results(0)->set_which(v1::RESULT_GRAD_WEIGHT);
  });
  expect_refused([](auto* r) {
    auto* source = r->mutable_results(0)->mutable_tensor()->mutable_inline_();
    source->set_payload_index(-1);
  });
}

TEST_F(ClientTest, ReturnsOperandsMemoryWhenADeadlinePassesMidway) {
  // The request has 64 MiB, which the service doesn't read after its deadline.
  call_.operation.problem = *Parse("linear_n4096_c4096_o4096");
  const TensorDescriptor square{
      DataType::kF32, Layout::kNCX, {4096, 4096}, 0, 1};
  call_.operation.operand(Operand::kGradOutput) = square;
  call_.operation.operand(Operand::kWeight) = square;
  call_.operation.operand(Operand::kWeight)->layout = Layout::kOIX;
  call_.operation.results[0].descriptor = square;
  std::vector<float> values(4096 * 4096, 1.0f);
  Lend(Operand::kWeight, values);
  Lend(Operand::kGradOutput, values);
  call_.deadline = absl::Now() + absl::Milliseconds(5);
  EXPECT_EQ(client_->Run(call_).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  // AddressSanitizer would report a slice that is still in flight.
  values = {};
  const auto capabilities =
      client_->Capabilities(absl::Now() + absl::Seconds(30));
  ASSERT_TRUE(capabilities.ok()) << capabilities.status();
  EXPECT_EQ(capabilities->workers(), 3);
}

TEST_F(ClientTest, SendsAgainWhatFailedForTheMoment) {
  FailAtFirst(3, grpc::StatusCode::UNAVAILABLE, "");
  ASSERT_TRUE(PersistentClient()->Run(call_).ok());
  EXPECT_EQ(ids(), std::vector<std::string>(4, ids()[0]));
  EXPECT_EQ(ids()[0].size(), 16u);
}

// A stopping server ends calls like this.
TEST_F(ClientTest, RepeatsWhatNobodyHereCancelled) {
  FailAtFirst(2, grpc::StatusCode::CANCELLED, "");
  const absl::Status status = PersistentClient()->Run(call_).status();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ids(), std::vector<std::string>(3, ids()[0]));
}

TEST_F(ClientTest, ComesAgainWhenTheServerSaysSo) {
  FailAtFirst(1, grpc::StatusCode::RESOURCE_EXHAUSTED, "120");
  const absl::Time start = absl::Now();
  ASSERT_TRUE(PersistentClient()->Run(call_).ok());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(120));
}

TEST_F(ClientTest, DoesNotRepeatWhatARepeatCannotChange) {
  FailAtFirst(9, grpc::StatusCode::RESOURCE_EXHAUSTED, "");
  EXPECT_FALSE(PersistentClient()->Run(call_).ok());
  EXPECT_EQ(ids().size(), 1u);
  FailAtFirst(9, grpc::StatusCode::INVALID_ARGUMENT, "1");
  EXPECT_FALSE(PersistentClient()->Run(call_).ok());
  EXPECT_EQ(ids().size(), 2u);
}

TEST_F(ClientTest, GivesUpAfterItsAttemptsAndAtItsDeadline) {
  FailAtFirst(99, grpc::StatusCode::UNAVAILABLE, "");
  EXPECT_EQ(PersistentClient()->Run(call_).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(ids().size(), 5u);
  FailAtFirst(99, grpc::StatusCode::RESOURCE_EXHAUSTED, "60000");
  call_.deadline = absl::Now() + absl::Seconds(5);
  // The error is returned at once, because the next attempt would come after
  // the deadline.
  EXPECT_EQ(PersistentClient()->Run(call_).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_LT(absl::Now(), call_.deadline);
}

TEST_F(ClientTest, TriesOnceUnlessTold) {
  FailAtFirst(1, grpc::StatusCode::UNAVAILABLE, "");
  EXPECT_FALSE(client_->Run(call_).ok());
  EXPECT_EQ(ids().size(), 1u);
}

TEST(IsTooLargeTest, OnlyForTheLimitOfMessages) {
  const auto limit = [](Reason reason, const std::string& field) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     {reason, field, "9", "8"});
  };
  EXPECT_TRUE(IsTooLarge(limit(Reason::kLimitExceeded, "response")));
  EXPECT_TRUE(IsTooLarge(limit(Reason::kLimitExceeded, "request")));
  EXPECT_FALSE(IsTooLarge(limit(Reason::kLimitExceeded, "memory")));
  EXPECT_FALSE(IsTooLarge(limit(Reason::kBusy, "response")));
  EXPECT_FALSE(IsTooLarge(absl::ResourceExhaustedError("")));
}

TEST(ClientConnectTest, SaysThatThereIsNoServer) {
  EXPECT_FALSE(Client::Connect({""}).ok());
  const auto client = Client::Connect({"unix:/nonexistent/socket"});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(
      (*client)->Capabilities(absl::Now() + absl::Seconds(30)).status().code(),
      absl::StatusCode::kUnavailable);
}

TEST(ClientConnectTest, RefusesPingsWithoutPause) {
  const absl::Status status =
      Client::Connect({.server = "localhost:1", .keepalive = absl::Seconds(0)})
          .status();
  ASSERT_TRUE(DetailOf(status)) << status;
  EXPECT_EQ(DetailOf(status)->field, "keepalive");
}

}  // namespace
}  // namespace convgrad
