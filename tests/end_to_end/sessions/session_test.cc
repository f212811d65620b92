// Tests sessions over a real socket: kept tensors, and changes that take effect
// exactly once.
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

std::vector<float> CountFrom(int64_t first, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(first + i));
  }
  return values;
}

void Keep(const std::string& name, v1::Tensor* tensor) {
  tensor->clear_dims();
  tensor->clear_dtype();
  tensor->clear_layout();
  tensor->mutable_kept()->set_tensor_id(name);
}

// Returns the seed backward with kept operands and kept gradients.
v1::ConvBackwardRequest KeptBackward() {
  v1::ConvBackwardRequest request = SeedBackward();
  auto* operands = request.mutable_operation()->mutable_operands();
  Keep("x", operands->mutable_input());
  Keep("w", operands->mutable_weight());
  Keep("g", operands->mutable_grad_output());
  request.clear_payloads();
  return request;
}

void KeepResults(v1::ConvBackwardRequest* request,
                 v1::ResultRequest::Store store) {
  for (auto& result : *request->mutable_operation()->mutable_results()) {
    result.mutable_kept()->set_tensor_id(
        absl::StrCat("r", static_cast<int>(result.which())));
    result.set_store(store);
  }
}

class SessionTest : public ::testing::Test {
 protected:
  void PutOperands(SessionClient* client) {
    const v1::ConvBackwardRequest seed = SeedBackward();
    const auto put = [&](const std::string& name, const v1::Tensor& tensor) {
      const auto reply = client->Put(
          name, tensor, seed.payloads(tensor.inline_().payload_index()));
      ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    };
    put("x", seed.operation().operands().input());
    put("w", seed.operation().operands().weight());
    put("g", seed.operation().operands().grad_output());
  }

  TestServer server_;
};

TEST_F(SessionTest, KeepsWhatIsPut) {
  SessionClient client(server_.channel());
  const std::string bytes = BytesOf(CountFrom(0, 12));
  EXPECT_TRUE(
      client.Put("w", TensorOf(v1::LAYOUT_OIX, {2, 3, 2}), bytes).status.ok());
  const auto same = client.Get("w");
  ASSERT_TRUE(same.status.ok()) << same.status.error_message();
  EXPECT_EQ(same.response.payloads(0), bytes);
  EXPECT_EQ(same.response.tensors(0).version(), 1);
  EXPECT_EQ(same.number, 1);

  v1::GetTensorsRequest request;
  request.add_tensors()->set_name("w");
  request.mutable_tensors(0)->set_layout(v1::LAYOUT_OXI);
  const auto other = client.Get(request);
  ASSERT_TRUE(other.status.ok()) << other.status.error_message();
  EXPECT_EQ(FloatsOf(other.response.payloads(0)),
            (std::vector<float>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));

  EXPECT_TRUE(client.Drop("w").status.ok());
  EXPECT_EQ(client.Get("w").status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(client.List().response.tensors_size(), 0);
  EXPECT_EQ(client.number(), 2);
}

TEST_F(SessionTest, KeptOperandsGiveTheBitsOfInlineOnes) {
  SessionClient client(server_.channel());
  PutOperands(&client);
  grpc::ClientContext context;
  v1::ConvBackwardResponse inline_response;
  ASSERT_TRUE(server_.stub()
                  .ConvBackward(&context, SeedBackward(), &inline_response)
                  .ok());

  const auto reply = SessionClient::Call<v1::ConvGrad::Stub>(
      &client.conv(), &v1::ConvGrad::Stub::ConvBackward, KeptBackward(),
      {client.id()});
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  for (int i = 0; i < inline_response.payloads_size(); ++i) {
    EXPECT_EQ(reply.response.payloads(i), inline_response.payloads(i));
  }
}

TEST_F(SessionTest, KeepsResultsAndAddsThem) {
  SessionClient client(server_.channel());
  PutOperands(&client);
  v1::ConvBackwardRequest request = KeptBackward();
  const auto first = SessionClient::Call<v1::ConvGrad::Stub>(
      &client.conv(), &v1::ConvGrad::Stub::ConvBackward, request,
      {client.id()});
  KeepResults(&request, v1::ResultRequest::STORE_ADD);
  for (int times = 1; times <= 3; ++times) {
    const auto reply = client.Backward(request);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    EXPECT_EQ(reply.response.payloads_size(), 0);
    for (int i = 0; i < request.operation().results_size(); ++i) {
      const std::string& name =
          request.operation().results(i).kept().tensor_id();
      std::vector<float> expected = FloatsOf(first.response.payloads(i));
      for (float& value : expected) value *= static_cast<float>(times);
      EXPECT_EQ(FloatsOf(client.Get(name).response.payloads(0)), expected);
    }
  }
  // The result replaces the sum.
  KeepResults(&request, v1::ResultRequest::STORE_OVERWRITE);
  ASSERT_TRUE(client.Backward(request).status.ok());
  EXPECT_EQ(client.Get("r2").response.payloads(0), first.response.payloads(0));
}

TEST_F(SessionTest, ARepeatIsAnsweredFromTheStore) {
  SessionClient client(server_.channel());
  PutOperands(&client);
  v1::ConvBackwardRequest request = KeptBackward();
  KeepResults(&request, v1::ResultRequest::STORE_ADD);
  const ChangeMetadata change = client.Next();
  std::string sum;
  for (int i = 0; i < 3; ++i) {
    const auto reply = SessionClient::Call<v1::ConvGrad::Stub>(
        &client.conv(), &v1::ConvGrad::Stub::ConvBackward, request, change);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    EXPECT_EQ(reply.number, change.sequence);
    const std::string now = client.Get("r3").response.payloads(0);
    if (i == 0) sum = now;
    EXPECT_EQ(now, sum);
  }
}

TEST_F(SessionTest, ARepeatOfARunningChangeWaitsForItsReply) {
  SessionClient client(server_.channel());
  const ChangeMetadata change = client.Next();
  const v1::PutTensorsRequest put = SessionClient::PutOf(
      "x", TensorOf(v1::LAYOUT_NCX, {1, 1 << 20}), std::string(4 << 20, 'x'));
  std::vector<std::future<int64_t>> numbers;
  for (int i = 0; i < 8; ++i) {
    numbers.push_back(std::async(std::launch::async, [&] {
      return SessionClient::Call<v1::ConvGradSessions::Stub>(
                 &client.stub(), &v1::ConvGradSessions::Stub::PutTensors, put,
                 change)
          .number;
    }));
  }
  for (auto& number : numbers) EXPECT_EQ(number.get(), 1);
  EXPECT_EQ(client.List().number, 1);
}

TEST_F(SessionTest, PipelinedChangesRunInTheirOrder) {
  SessionClient client(server_.channel());
  std::vector<ChangeMetadata> changes;
  for (int64_t n = 1; n <= 20; ++n) {
    changes.push_back({client.id(), 1, n, NewCallId(), 0});
  }
  std::vector<std::thread> threads;
  // The changes arrive in reverse order.
  for (int64_t n = 20; n >= 1; --n) {
    threads.emplace_back([&, n] {
      const auto reply = SessionClient::Call<v1::ConvGradSessions::Stub>(
          &client.stub(), &v1::ConvGradSessions::Stub::PutTensors,
          SessionClient::PutOf("x", TensorOf(v1::LAYOUT_NCX, {1, 1}),
                               BytesOf({static_cast<float>(n)})),
          changes[n - 1]);
      EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
      EXPECT_EQ(reply.response.version(), n);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(FloatsOf(client.Get("x").response.payloads(0)),
            std::vector<float>{20});
}

TEST_F(SessionTest, AFailedChangeChangesNothingAndEndsItsEpoch) {
  SessionClient client(server_.channel());
  ASSERT_TRUE(client.Put("x", TensorOf(v1::LAYOUT_NCX, {1, 1}), BytesOf({1}))
                  .status.ok());
  // The second of two tensors is too short.
  v1::PutTensorsRequest request =
      SessionClient::PutOf("x", TensorOf(v1::LAYOUT_NCX, {1, 1}), BytesOf({2}));
  *request.add_tensors() = request.tensors(0);
  request.mutable_tensors(1)->set_name("y");
  request.mutable_tensors(1)
      ->mutable_tensor()
      ->mutable_inline_()
      ->set_payload_index(1);
  request.add_payloads("ab");
  const ChangeMetadata failed = client.Next();
  const auto reply = SessionClient::Call<v1::ConvGradSessions::Stub>(
      &client.stub(), &v1::ConvGradSessions::Stub::PutTensors, request, failed);
  EXPECT_EQ(reply.status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(reply.trailers.field, "payloads[1]");
  EXPECT_EQ(reply.number, 1);
  EXPECT_EQ(client.Get("x").response.payloads(0), BytesOf({1}));
  const auto late = SessionClient::Call<v1::ConvGradSessions::Stub>(
      &client.stub(), &v1::ConvGradSessions::Stub::PutTensors, request, failed);
  EXPECT_EQ(late.status.error_code(), grpc::ABORTED);
  EXPECT_EQ(late.trailers.reason, "EPOCH_ENDED");
}

TEST_F(SessionTest, WhoResumesTakesOver) {
  SessionClient client(server_.channel());
  ASSERT_TRUE(client.Put("x", TensorOf(v1::LAYOUT_NCX, {1, 1}), BytesOf({1}))
                  .status.ok());
  grpc::ClientContext context;
  v1::ResumeSessionRequest resume;
  resume.set_session_id(client.id());
  v1::SessionResponse resumed;
  ASSERT_TRUE(client.stub().ResumeSession(&context, resume, &resumed).ok());
  EXPECT_EQ(resumed.epoch(), 2);
  EXPECT_EQ(resumed.number(), 1);
  const auto reply =
      client.Put("x", TensorOf(v1::LAYOUT_NCX, {1, 1}), BytesOf({2}));
  EXPECT_EQ(reply.status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(reply.trailers.reason, "TAKEN_OVER");
}

TEST_F(SessionTest, RefusesDigestsOfOtherBytes) {
  SessionClient client(server_.channel());
  v1::PutTensorsRequest request =
      SessionClient::PutOf("x", TensorOf(v1::LAYOUT_NCX, {1, 1}), BytesOf({0}));
  request.mutable_tensors(0)->set_digest(std::string(32, 'd'));
  EXPECT_EQ(client.Put(request).trailers.field, "tensors[0].digest");
  v1::HaveTensorsRequest ask;
  ask.add_digests(std::string(32, 'd'));
  grpc::ClientContext context;
  v1::HaveTensorsResponse have;
  ASSERT_TRUE(client.stub().HaveTensors(&context, ask, &have).ok());
  EXPECT_FALSE(have.have(0));
  request.mutable_tensors(0)->clear_tensor();
  request.clear_payloads();
  EXPECT_EQ(client.Put(request).status.error_code(), grpc::NOT_FOUND);
}

TEST_F(SessionTest, BytesAreSentOnce) {
  // The digest is SHA-256 of "f32:NCX[1,1]\n" and four zero bytes, computed by
  // another program.
  const std::string digest = absl::HexStringToBytes(
      "850d122019fb24d49befbab6b6c69da2"
      "75133a8e96db8086ae93a084fb561e7c");
  v1::PutTensorsRequest request =
      SessionClient::PutOf("x", TensorOf(v1::LAYOUT_NCX, {1, 1}), BytesOf({0}));
  request.mutable_tensors(0)->set_digest(digest);
  SessionClient first(server_.channel());
  const auto put = first.Put(request);
  ASSERT_TRUE(put.status.ok()) << put.status.error_message();
  // Another session of this client puts it without bytes.
  request.mutable_tensors(0)->clear_tensor();
  request.clear_payloads();
  SessionClient second(server_.channel());
  ASSERT_TRUE(second.Put(request).status.ok());
  EXPECT_EQ(second.Get("x").response.payloads(0), BytesOf({0}));
  EXPECT_EQ(
      server_.server().gauges().SumOf("convgrad_digest_saved_bytes_total"), 4);
}

TEST_F(SessionTest, RefusesWhatIsNoChange) {
  SessionClient client(server_.channel());
  PutOperands(&client);
  v1::ConvBackwardRequest request = KeptBackward();
  KeepResults(&request, v1::ResultRequest::STORE_ADD);
  const auto read = SessionClient::Call<v1::ConvGrad::Stub>(
      &client.conv(), &v1::ConvGrad::Stub::ConvBackward, request,
      {client.id()});
  EXPECT_EQ(read.status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(read.trailers.field, "operation.results[0].kept");
  const auto unknown = SessionClient::Call<v1::ConvGrad::Stub>(
      &client.conv(), &v1::ConvGrad::Stub::ConvBackward, KeptBackward(),
      {std::string(16, '?')});
  EXPECT_EQ(unknown.status.error_code(), grpc::NOT_FOUND);
  grpc::ClientContext context;
  v1::ConvBackwardResponse response;
  EXPECT_EQ(server_.stub()
                .ConvBackward(&context, KeptBackward(), &response)
                .error_code(),
            grpc::INVALID_ARGUMENT);
}

TEST_F(SessionTest, MemoryGoesBackWithTheSession) {
  {
    SessionClient client(server_.channel());
    PutOperands(&client);
    grpc::ClientContext context;
    v1::CloseSessionRequest close;
    close.set_session_id(client.id());
    v1::CloseSessionResponse closed;
    ASSERT_TRUE(client.stub().CloseSession(&context, close, &closed).ok());
    EXPECT_EQ(client.Get("x").status.error_code(), grpc::NOT_FOUND);
  }
  server_.ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad
