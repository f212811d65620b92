// Tests changes that the server refuses before it has their message, and
// clients without rights that send too much.
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/sessions/network_client.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

using Stub = v1::ConvGradSessions::Stub;

constexpr char kInfer[] = "infer-infer-infer-infer";
constexpr char kTrain[] = "train-train-train-train";
constexpr char kReader[] = "bob-bob-bob-bob-bob";

std::string TokenFile() {
  std::string path = testing::TempDir() + "/refused_changes.tokens";
  std::ofstream(path) << "ada infer " << kInfer << "\nada train " << kTrain
                      << "\nbob train " << kReader << "\n";
  return path;
}

// Opens a session of ada's.
v1::SessionResponse OpenSession(const TestServer& server,
                                const std::vector<std::string>& readers) {
  v1::OpenSessionRequest request;
  request.set_open_id(NewCallId());
  request.mutable_readers()->Assign(readers.begin(), readers.end());
  grpc::ClientContext context;
  context.AddMetadata("authorization", absl::StrCat("Bearer ", kTrain));
  v1::SessionResponse session;
  EXPECT_TRUE(
      Stub(server.channel()).OpenSession(&context, request, &session).ok());
  return session;
}

v1::PutTensorsRequest OneFloat() {
  return SessionClient::PutOf("x", TensorOf(v1::LAYOUT_NCX, {1}), BytesOf({1}));
}

// Puts a float as `change`, with one more entry of metadata.
SessionReply<v1::PutTensorsResponse> PutWith(SessionClient* client,
                                             const ChangeMetadata& change,
                                             const std::string& key,
                                             const std::string& value) {
  grpc::ClientContext context;
  AddTo(&context, change);
  context.AddMetadata(key, value);
  SessionReply<v1::PutTensorsResponse> reply;
  reply.status =
      client->stub().PutTensors(&context, OneFloat(), &reply.response);
  reply.trailers = TrailersOf(context);
  reply.number = NumberOf(context);
  return reply;
}

// The client must know that its change failed, so that it can continue in the
// next epoch.
TEST(RefusedChanges, TellTheirNumber) {
  TestServer server;
  struct Row {
    const char* key;
    const char* value;
    grpc::StatusCode code;
  };
  for (const Row& row : {
           Row{kPriorityKey, "urgent", grpc::StatusCode::INVALID_ARGUMENT},
           Row{kRequestBytesKey, "999999999999",
               grpc::StatusCode::RESOURCE_EXHAUSTED},
       }) {
    SessionClient client(server.channel());
    ASSERT_TRUE(client.Put(OneFloat()).status.ok());
    const auto reply = PutWith(&client, client.Next(), row.key, row.value);
    EXPECT_EQ(reply.status.error_code(), row.code);
    EXPECT_EQ(reply.number, 1) << row.key;
    client.Failed();
    EXPECT_TRUE(client.Put(OneFloat()).status.ok());
  }
  SessionClient client(server.channel());
  ChangeMetadata broken = client.Next();
  broken.call_id = "short";
  const auto reply = PutWith(&client, broken, "x", "y");
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(reply.number, 0);
}

TEST(RefusedChanges, AClosedSessionTellsItsLastNumber) {
  TestServer server;
  SessionClient client(server.channel());
  ASSERT_TRUE(client.Put(OneFloat()).status.ok());
  ChangeMetadata ahead = client.Next();
  ++ahead.sequence;
  SessionReply<v1::PutTensorsResponse> reply;
  std::thread waits([&] {
    reply = SessionClient::Call(&client.stub(), &Stub::PutTensors, OneFloat(),
                                ahead);
  });
  server.AwaitMetric(
      "grpc_server_started_total{grpc_method=\"PutTensors\","
      "grpc_service=\"convgrad.v1.ConvGradSessions\","
      "grpc_type=\"unary\"} 2");
  grpc::ClientContext context;
  v1::CloseSessionRequest close;
  close.set_session_id(client.id());
  v1::CloseSessionResponse closed;
  EXPECT_TRUE(client.stub().CloseSession(&context, close, &closed).ok());
  waits.join();
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(reply.status.error_message().find("start at"), std::string::npos);
  EXPECT_EQ(reply.number, 1);
}

TEST(RefusedChanges, AChangeTakesTheRoleTrain) {
  Config config = TestConfig();
  config.token_file = TokenFile();
  TestServer server(config);
  const v1::SessionResponse session = OpenSession(server, {});
  const auto list = [&](const std::string& token, int64_t sequence) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    AddTo(&context, {session.session_id(), 1, sequence, NewCallId(), 0});
    v1::ListTensorsResponse response;
    return Stub(server.channel())
        .ListTensors(&context, v1::ListTensorsRequest(), &response)
        .error_code();
  };
  EXPECT_EQ(list(kInfer, 0), grpc::StatusCode::OK);
  EXPECT_EQ(list(kInfer, 1), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(list(kTrain, 1), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(RefusedChanges, ABackwardTakesTheOwnerAndTheRoleTrain) {
  Config config = TestConfig();
  config.token_file = TokenFile();
  TestServer server(config);
  const v1::SessionResponse session = OpenSession(server, {"bob"});
  const auto networks = v1::ConvGradNetworks::NewStub(server.channel());
  const auto begin = [&](const std::string& token, int64_t sequence,
                         grpc::ClientContext* context) {
    context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
    AddTo(context, {session.session_id(), 1, sequence, NewCallId(), 0});
  };
  v1::LoadProgramRequest load;
  load.set_name("net");
  *load.mutable_program() = EncodeProgram(
      *ParseProgram("input a\ninput b\nl = mse(a, b)\noutput l\n"));
  v1::LoadProgramResponse loaded;
  grpc::ClientContext loading;
  begin(kTrain, 1, &loading);
  ASSERT_TRUE(networks->LoadProgram(&loading, load, &loaded).ok());
  const auto run = [&](const std::string& token, bool has_backward) {
    v1::RunProgramRequest request;
    request.set_program("net");
    AddValue("a", {1, 1}, {1}, request.mutable_inputs(), &request);
    AddValue("b", {1, 1}, {2}, request.mutable_inputs(), &request);
    if (has_backward) {
      request.mutable_backward()->set_leave_parameters(true);
      request.mutable_backward()->add_input_gradients("a");
    }
    grpc::ClientContext context;
    begin(token, 0, &context);
    v1::RunProgramResponse response;
    return networks->RunProgram(&context, request, &response).error_code();
  };
  EXPECT_EQ(run(kTrain, true), grpc::StatusCode::OK);
  for (const char* token : {kInfer, kReader}) {
    EXPECT_EQ(run(token, false), grpc::StatusCode::OK);
    EXPECT_EQ(run(token, true), grpc::StatusCode::PERMISSION_DENIED);
  }
}

// A parsed message takes 29 times its bytes, so the server parses none without
// a token.
TEST(RefusedChanges, AStrangersMessageIsNotParsed) {
  ChildServer server({"--memory_budget_bytes=256MiB",
                      absl::StrCat("--token_file=", TokenFile())});
  const int64_t before = server.MemoryBytes("VmHWM");
  const auto channel =
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  std::string body(48 << 20, '\0');
  for (size_t i = 0; i < body.size(); i += 2) body[i] = '\x0a';
  for (const char* method :
       {"ConvGradSessions/HaveTensors", "ConvGradSessions/OpenSession",
        "ConvGradAdmin/Warmup", "ConvGrad/GetCapabilities"}) {
    const RawReply reply =
        CallRaw(channel, absl::StrCat("/convgrad.v1.", method), body);
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
        << method << ": " << reply.status.error_message();
  }
  // Received bytes are held once or twice (ThreadSanitizer's records included);
  // a parsed body would take 1.4 GB.
  EXPECT_LT(server.MemoryBytes("VmHWM") - before, 128 << 20);
  // The server also parses no message that is larger than its method allows.
  const RawReply reply =
      CallRaw(channel, "/convgrad.v1.ConvGradSessions/RenewSession",
              std::string(1 << 20, '\x0a'),
              {{"authorization", absl::StrCat("Bearer ", kTrain)}});
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.trailers.field, "request");
}

}  // namespace
}  // namespace convgrad
