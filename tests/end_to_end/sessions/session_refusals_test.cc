// Tests the refusals of a session: each has one status that names the field,
// its memory is freed, and other clients are served.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/cutting_proxy.h"
#include "tests/end_to_end/sessions/call_in_flight.h"

namespace convgrad {
namespace {

v1::PutTensorsRequest PutOfFloats(const std::string& name, int64_t count,
                                  float value) {
  return SessionClient::PutOf(
      name, TensorOf(v1::LAYOUT_NCX, {1, count}),
      BytesOf(std::vector<float>(static_cast<size_t>(count), value)));
}

class SessionRefusals : public ::testing::Test {
 protected:
  // Expects that nothing is held and that other clients are served.
  void TearDown() override {
    SessionClient other(server_.channel());
    EXPECT_TRUE(other.Put(PutOfFloats("x", 4, 1)).status.ok());
    Close(other.id());
    for (const std::string& id : opened_) Close(id);
    server_.ExpectNothingHeld();
  }

  void Close(const std::string& id) {
    grpc::ClientContext context;
    v1::CloseSessionRequest close;
    close.set_session_id(id);
    v1::CloseSessionResponse closed;
    const grpc::Status status = stub_->CloseSession(&context, close, &closed);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  SessionClient& Open(const v1::OpenSessionRequest& request = {}) {
    clients_.push_back(
        std::make_unique<SessionClient>(server_.channel(), request));
    opened_.push_back(clients_.back()->id());
    return *clients_.back();
  }

  // Returns the code and the reason with which the server refuses to open a
  // session.
  std::pair<grpc::StatusCode, std::string> Refusal(
      v1::OpenSessionRequest request) {
    if (request.open_id().empty()) request.set_open_id(NewCallId());
    grpc::ClientContext context;
    v1::SessionResponse response;
    const grpc::Status status =
        stub_->OpenSession(&context, request, &response);
    if (status.ok()) opened_.push_back(response.session_id());
    return {status.error_code(), TrailersOf(context).field};
  }

  template <typename Reply>
  static void ExpectRefusal(const Reply& reply, grpc::StatusCode code,
                            const std::string& field) {
    EXPECT_EQ(reply.status.error_code(), code) << reply.status.error_message();
    EXPECT_EQ(reply.trailers.field, field) << reply.status.error_message();
  }

  TestServer server_;
  const std::unique_ptr<v1::ConvGradSessions::Stub> stub_ =
      v1::ConvGradSessions::NewStub(server_.channel());
  std::vector<std::unique_ptr<SessionClient>> clients_;
  std::vector<std::string> opened_;
};

TEST_F(SessionRefusals, Names) {
  const std::vector<std::string> names = {"",
                                          "a/b",
                                          "..\\x",
                                          "line\nfeed",
                                          std::string("nul\0", 4),
                                          "\x7f",
                                          std::string(10'240, 'n')};
  for (const std::string& name : names) {
    SessionClient& client = Open();
    ExpectRefusal(client.Put(PutOfFloats(name, 4, 1)), grpc::INVALID_ARGUMENT,
                  "tensors[0].name");
    v1::ConvForwardRequest forward = SeedForward();
    v1::ResultRequest* result = forward.mutable_operation()->mutable_results(0);
    result->mutable_kept()->set_tensor_id(name);
    ExpectRefusal(client.Forward(forward), grpc::INVALID_ARGUMENT,
                  "operation.results[0].kept.tensor_id");
    EXPECT_EQ(client.List().response.tensors_size(), 0);
    if (name.empty()) continue;
    v1::OpenSessionRequest open;
    open.set_name(name);
    EXPECT_EQ(Refusal(open),
              std::make_pair(grpc::INVALID_ARGUMENT, std::string("name")));
  }
}

TEST_F(SessionRefusals, OtherIds) {
  SessionClient& client = Open();
  SessionClient& neighbour = Open();
  ASSERT_TRUE(client.Put(PutOfFloats("x", 4, 1)).status.ok());
  for (const std::string& id :
       {std::string(16, '?'), std::string("short"), std::string(4096, 'l')}) {
    ChangeMetadata change = client.Next();
    change.session = id;
    const auto reply =
        StartChange(server_.channel(), PutOfFloats("x", 4, 2), change)->Await();
    ExpectRefusal(reply, grpc::NOT_FOUND, "session");
    EXPECT_EQ(reply.number, -1);
  }
  // A change can't name a tensor of another session.
  v1::ConvForwardRequest forward = SeedForward();
  auto* input =
      forward.mutable_operation()->mutable_operands()->mutable_input();
  input->mutable_kept()->set_session_id(neighbour.id());
  input->mutable_kept()->set_tensor_id("x");
  const auto reply = client.Forward(forward);
  ExpectRefusal(reply, grpc::INVALID_ARGUMENT,
                "operation.operands.input.kept.session_id");
  EXPECT_EQ(reply.status.error_message().find(neighbour.id()),
            std::string::npos);
}

TEST_F(SessionRefusals, Leases) {
  for (const double seconds :
       {1e-9, 0.999, 86'401.0, 3.2e9, -1.0, 1e300,
        std::numeric_limits<double>::infinity(), std::nan("")}) {
    v1::OpenSessionRequest open;
    open.set_lease_seconds(seconds);
    EXPECT_EQ(Refusal(open), std::make_pair(grpc::INVALID_ARGUMENT,
                                            std::string("lease_seconds")))
        << seconds;
  }
}

TEST_F(SessionRefusals, Quotas) {
  v1::OpenSessionRequest open;
  open.set_quota_bytes(std::numeric_limits<int64_t>::min());  // 2^63, wrapped.
  EXPECT_EQ(Refusal(open),
            std::make_pair(grpc::INVALID_ARGUMENT, std::string("quota_bytes")));
  open.set_quota_bytes(std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(Open(open).Put(PutOfFloats("x", 1 << 10, 1)).status.ok());
  EXPECT_TRUE(Open().Put(PutOfFloats("x", 1 << 10, 1)).status.ok());
  open.set_quota_bytes(8192);
  SessionClient& small = Open(open);
  ASSERT_TRUE(small.Put(PutOfFloats("x", 1 << 10, 1)).status.ok());
  ExpectRefusal(small.Put(PutOfFloats("y", 1 << 12, 2)),
                grpc::RESOURCE_EXHAUSTED, "session");
  EXPECT_EQ(small.List().response.tensors_size(), 1);
  EXPECT_TRUE(small.Put(PutOfFloats("x", 1 << 10, 3)).status.ok());
}

TEST_F(SessionRefusals, Digests) {
  SessionClient& client = Open();
  v1::PutTensorsRequest put = PutOfFloats("x", 4, 1);
  put.mutable_tensors(0)->set_digest(std::string(31, 'd'));
  ExpectRefusal(client.Put(put), grpc::INVALID_ARGUMENT, "tensors[0].digest");
  put.mutable_tensors(0)->set_digest(std::string(32, 'd'));
  ExpectRefusal(client.Put(put), grpc::INVALID_ARGUMENT, "tensors[0].digest");
  v1::PutTensorsRequest unknown;
  unknown.add_tensors()->set_name("x");
  unknown.mutable_tensors(0)->set_digest(std::string(32, 'd'));
  ExpectRefusal(client.Put(unknown), grpc::NOT_FOUND, "tensors[0].digest");
  EXPECT_EQ(client.List().response.tensors_size(), 0);
}

TEST_F(SessionRefusals, APutThatStopsHalfWay) {
  CuttingProxy proxy(server_.address());
  SessionClient& client = Open();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(
      proxy.address(), grpc::InsecureChannelCredentials(), arguments);
  const v1::PutTensorsRequest put = PutOfFloats("x", 1 << 20, 1);
  const ChangeMetadata change = client.Next();
  proxy.CutAfter(CuttingProxy::Direction::kToServer, 2 << 20);
  const auto lost = StartChange(channel, put, change)->Await();
  EXPECT_EQ(lost.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(lost.number, -1);
  ASSERT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() +
                                        std::chrono::seconds(20)));
  const auto repeat = StartChange(channel, put, change)->Await();
  EXPECT_EQ(repeat.trailers.reason, "EPOCH_ENDED");
  EXPECT_EQ(repeat.number, 0);
  EXPECT_EQ(client.List().response.tensors_size(), 0);
}

TEST_F(SessionRefusals, AReadSeesOneVersionOfATensorThatIsWritten) {
  SessionClient& client = Open();
  constexpr int kCount = 1 << 19;
  ASSERT_TRUE(client.Put(PutOfFloats("x", kCount, 1)).status.ok());
  std::thread writer([&client] {
    for (float value = 2; value <= 12; ++value) {
      EXPECT_TRUE(client.Put(PutOfFloats("x", kCount, value)).status.ok());
    }
  });
  v1::GetTensorsRequest request;
  request.add_tensors()->set_name("x");
  int64_t version = 0;
  while (version < 12 && !HasFailure()) {
    v1::GetTensorsResponse response;
    const auto reply =
        CallInFlight(server_.channel(), request, {client.id()}).Await();
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    ASSERT_TRUE(response.ParseFromString(reply.response));
    EXPECT_GE(response.tensors(0).version(), version);
    version = response.tensors(0).version();
    EXPECT_EQ(FloatsOf(response.payloads(0)),
              std::vector<float>(kCount, static_cast<float>(version)));
  }
  writer.join();
}

TEST_F(SessionRefusals, SumsOfAnotherShapeDtypeOrLayout) {
  const auto add_to = [&](const v1::Tensor& kept, int64_t bytes,
                          const v1::ConvForwardRequest& wanted,
                          const std::string& field) {
    SessionClient& client = Open();
    const auto put = client.Put("sum", kept, std::string(bytes, '\0'));
    ASSERT_TRUE(put.status.ok()) << put.status.error_message();
    ExpectRefusal(client.Forward(wanted), grpc::INVALID_ARGUMENT, field);
    EXPECT_EQ(client.Get("sum").response.payloads(0), std::string(bytes, '\0'));
  };
  v1::ConvForwardRequest forward = SeedForward();
  v1::ResultRequest* result = forward.mutable_operation()->mutable_results(0);
  result->mutable_kept()->set_tensor_id("sum");
  result->set_store(v1::ResultRequest::STORE_ADD);
  const std::string path = "operation.results[0]";
  add_to(TensorOf(v1::LAYOUT_NCX, {1, 1, 2, 3}), 24, forward, path + ".kept");
  add_to(TensorOf(v1::LAYOUT_NCX, {1, 1, 2}), 8, forward, path + ".kept");
  add_to(TensorOf(v1::LAYOUT_NCX, {1, 1, 2, 2}, v1::DATA_TYPE_BF16), 8, forward,
         path + ".dtype");
  result->set_layout(v1::LAYOUT_NCX);
  add_to(TensorOf(v1::LAYOUT_NXC, {1, 1, 2, 2}), 16, forward, path + ".layout");
}

// Blocks of 2 groups and of 1 group may have the same dims, but not the same
// order.
TEST_F(SessionRefusals, SumsOfBlocksOfOtherGroups) {
  SessionClient& client = Open();
  v1::ConvBackwardRequest backward;
  v1::ConvOperation* operation = backward.mutable_operation();
  for (int64_t extent : {1, 64, 4, 4, 4}) {
    operation->mutable_problem()->add_input_dims(extent);
  }
  operation->mutable_problem()->set_out_channels(32);
  operation->mutable_problem()->add_kernel(1);
  operation->mutable_problem()->set_groups(2);
  v1::Operands* operands = operation->mutable_operands();
  *operands->mutable_input() = TensorOf(v1::LAYOUT_NCX, {1, 64, 4, 4, 4});
  *operands->mutable_grad_output() = TensorOf(v1::LAYOUT_NCX, {1, 32, 4, 4, 4});
  operands->mutable_input()->mutable_inline_()->set_payload_index(0);
  operands->mutable_grad_output()->mutable_inline_()->set_payload_index(1);
  backward.add_payloads(std::string(64 * 64 * 4, '\0'));
  backward.add_payloads(std::string(32 * 64 * 4, '\0'));
  v1::ResultRequest* result = operation->add_results();
  result->set_which(v1::RESULT_GRAD_WEIGHT);
  result->set_layout(v1::LAYOUT_FRACTAL_Z_3D);
  result->mutable_kept()->set_tensor_id("sum");
  result->set_store(v1::ResultRequest::STORE_ADD);
  const auto first = client.Backward(backward);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  ASSERT_TRUE(client.Backward(backward).status.ok());
  // The problem has the same dims with 1 group.
  operation->mutable_problem()->set_input_dims(1, 32);
  operation->mutable_problem()->set_groups(1);
  operands->mutable_input()->set_dims(1, 32);
  backward.set_payloads(0, std::string(32 * 64 * 4, '\0'));
  ExpectRefusal(client.Backward(backward), grpc::INVALID_ARGUMENT,
                "operation.results[0].kept");
}

TEST_F(SessionRefusals, ATensorThatIsDroppedWhileACallNeedsIt) {
  SessionClient& client = Open();
  const v1::ConvForwardRequest seed = SeedForward();
  ASSERT_TRUE(
      client.Put("x", seed.operation().operands().input(), seed.payloads(0))
          .status.ok());
  v1::ConvForwardRequest forward = seed;
  auto* input =
      forward.mutable_operation()->mutable_operands()->mutable_input();
  input->Clear();
  input->mutable_kept()->set_tensor_id("x");
  forward.clear_payloads();
  forward.add_payloads(seed.payloads(1));
  forward.mutable_operation()
      ->mutable_operands()
      ->mutable_weight()
      ->mutable_inline_()
      ->set_payload_index(0);
  // Reads that started before the drop have the tensor; later ones don't.
  std::vector<std::unique_ptr<CallInFlight>> reads;
  for (int i = 0; i < 20; ++i) {
    reads.push_back(std::make_unique<CallInFlight>(
        server_.channel(), forward, ChangeMetadata{client.id()}));
  }
  EXPECT_TRUE(client.Drop("x").status.ok());
  for (const auto& read : reads) {
    const auto reply = read->Await();
    if (reply.status.ok()) continue;
    ExpectRefusal(reply, grpc::NOT_FOUND,
                  "operation.operands.input.kept.tensor_id");
  }
  // The change waits until the drop is committed.
  ChangeMetadata drop = client.Next();
  ASSERT_TRUE(client.Put(PutOfFloats("y", 4, 1)).status.ok());
  drop = client.Next();
  ChangeMetadata needs = drop;
  ++needs.sequence;
  needs.call_id = NewCallId();
  forward.mutable_operation()
      ->mutable_results(0)
      ->mutable_kept()
      ->set_tensor_id("z");
  input->mutable_kept()->set_tensor_id("y");
  const auto waiting = StartChange(server_.channel(), forward, needs);
  v1::DropTensorsRequest names;
  names.add_names("y");
  EXPECT_TRUE(StartChange(server_.channel(), names, drop)->Await().status.ok());
  ExpectRefusal(waiting->Await(), grpc::NOT_FOUND,
                "operation.operands.input.kept.tensor_id");
}

TEST_F(SessionRefusals, ChangesThatNeverGetTheirTurn) {
  SessionClient& client = Open();
  std::vector<std::unique_ptr<CallInFlight>> waiting;
  for (int64_t ahead = 1; ahead < 64; ++ahead) {
    ChangeMetadata change = client.Next();
    change.sequence += ahead;
    waiting.push_back(StartChange(server_.channel(),
                                  PutOfFloats("x", 1 << 12, 1), change,
                                  absl::Seconds(1)));
  }
  // The refused calls hold nothing that other calls need.
  SessionClient& other = Open();
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(other.Put(PutOfFloats("x", 1 << 20, 1)).status.ok());
  }
  for (const auto& call : waiting) {
    EXPECT_EQ(call->Await().status.error_code(), grpc::DEADLINE_EXCEEDED);
  }
  EXPECT_EQ(client.List().number, 0);
}

// CONVGRAD_SESSION_OPENS is the number of opens, 2,000 by default.
TEST_F(SessionRefusals, OpensInALoop) {
  const char* const text = std::getenv("CONVGRAD_SESSION_OPENS");
  int opens = 2000;
  if (text != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(text, &opens)) << text;
  }
  int refused = 0;
  for (int i = 0; i < opens; ++i) {
    const auto [code, field] = Refusal({});
    if (code == grpc::StatusCode::OK) continue;
    ++refused;
    EXPECT_EQ(code, grpc::RESOURCE_EXHAUSTED);
    EXPECT_EQ(field.rfind("client '", 0), 0u) << field;
  }
  EXPECT_EQ(refused, opens - TestConfig().max_client_sessions);
  // Open sessions continue, and a closed one makes room for another.
  Close(opened_.back());
  opened_.pop_back();
}

}  // namespace
}  // namespace convgrad
