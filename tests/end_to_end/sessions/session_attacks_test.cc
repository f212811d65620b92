// Tests attacks of a client with sessions that once succeeded.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr char kRelu[] = "input x\ny = relu(x)\noutput y\n";
constexpr char kMse[] = "input a\ninput b\nl = mse(a, b)\noutput l\n";

v1::RunProgramRequest RunOf(int64_t floats, const std::string& tape = "") {
  v1::RunProgramRequest request;
  request.set_program("net");
  request.set_tape(tape);
  AddValue("x", {1, floats}, Floats(static_cast<size_t>(floats), 1),
           request.mutable_inputs(), &request);
  return request;
}

v1::OpenSessionRequest OpenWithQuota(int64_t bytes) {
  v1::OpenSessionRequest open;
  open.set_quota_bytes(bytes);
  return open;
}

// Returns the value of a metric without labels.
int64_t MetricOf(TestServer& server, const std::string& name) {
  const std::string text = "\n" + server.server().MetricsText();
  const size_t at = text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name;
  int64_t value = -1;
  const size_t begin = at + name.size() + 2;
  EXPECT_TRUE(absl::SimpleAtoi(
      text.substr(begin, text.find('\n', begin) - begin), &value));
  return value;
}

template <typename Reply>
void ExpectRefused(const Reply& reply, grpc::StatusCode code,
                   const std::string& field) {
  EXPECT_EQ(reply.status.error_code(), code) << reply.status.error_message();
  EXPECT_EQ(reply.trailers.field, field) << reply.status.error_message();
}

TEST(SessionAttacks, TwoInputsMayNameOnePayload) {
  TestServer server;
  NetworkClient client(server.channel());
  client.Load("net", "input a\ninput b\nc = add(a, b)\noutput c\n");
  v1::RunProgramRequest request;
  request.set_program("net");
  AddValue("a", {1, 3}, {1, 2, 3}, request.mutable_inputs(), &request);
  *request.add_inputs() = request.inputs(0);
  request.mutable_inputs(1)->set_name("b");
  const auto reply = client.Infer(request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_EQ(FloatsOf(reply.response.payloads(0)), (Floats{2, 4, 6}));
}

TEST(SessionAttacks, AnInputGradientIsAskedForOnce) {
  TestServer server;
  NetworkClient client(server.channel());
  client.Load("net", kMse);
  v1::RunProgramRequest request;
  request.set_program("net");
  AddValue("a", {1, 2}, {1, 2}, request.mutable_inputs(), &request);
  AddValue("b", {1, 2}, {1, 2}, request.mutable_inputs(), &request);
  request.mutable_backward()->set_leave_parameters(true);
  request.mutable_backward()->add_input_gradients("b");
  EXPECT_TRUE(client.Infer(request).status.ok());
  request.mutable_backward()->add_input_gradients("b");
  ExpectRefused(client.Infer(request), grpc::StatusCode::INVALID_ARGUMENT,
                "input_gradients");
}

// The change must not be committed, because its reply could never be sent.
TEST(SessionAttacks, AChangeWhoseReplyIsTooLargeDoesNotRun) {
  Config config = TestConfig();
  config.max_message_bytes = kMiB;
  TestServer server(config);
  NetworkClient client(server.channel());
  client.Load("net", kMse);
  const int64_t count = kMiB / 5;
  const std::string half(static_cast<size_t>(count) * 2, '\0');
  v1::RunProgramRequest request;
  request.set_program("net");
  for (const char* name : {"a", "b"}) {
    v1::NamedValue* value = request.add_inputs();
    value->set_name(name);
    *value->mutable_tensor() =
        TensorOf(v1::LAYOUT_NCX, {1, count}, v1::DATA_TYPE_BF16);
    value->mutable_tensor()->mutable_inline_()->set_payload_index(
        request.payloads_size());
    request.add_payloads(half);
    request.mutable_backward()->add_input_gradients(name);
  }
  const int64_t before = client.session().number();
  auto change = client.session().Next();
  const auto reply = [&] {
    return SessionClient::Call(&client.stub(), &NetworkClient::Stub::RunProgram,
                               request, change);
  };
  const auto refused = reply();
  ExpectRefused(refused, grpc::StatusCode::RESOURCE_EXHAUSTED, "response");
  EXPECT_EQ(refused.trailers.pushback_ms, "");
  EXPECT_EQ(refused.number, before);
  client.session().Failed();
  client.Put("x", {1}, {1});
}

TEST(SessionAttacks, ReadsAreNoChanges) {
  TestServer server;
  SessionClient client(server.channel());
  client.Put("x", TensorOf(v1::LAYOUT_NCX, {1}), BytesOf({1}));
  v1::GetTensorsRequest get;
  get.add_tensors()->set_name("x");
  using Stub = v1::ConvGradSessions::Stub;
  const auto got = client.Change<Stub>(&client.stub(), &Stub::GetTensors, get);
  ExpectRefused(got, grpc::StatusCode::INVALID_ARGUMENT, kSequenceKey);
  // The server has decided, so the client may continue.
  EXPECT_EQ(got.number, 1);
  ExpectRefused(client.Change<Stub>(&client.stub(), &Stub::ListTensors,
                                    v1::ListTensorsRequest()),
                grpc::StatusCode::INVALID_ARGUMENT, kSequenceKey);
  grpc::ClientContext context;
  AddTo(&context, client.Next());
  auto stream = client.stub().GetTensorsStream(&context, get);
  v1::GetTensorsStreamResponse message;
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  client.Failed();
  EXPECT_TRUE(
      client.Put("y", TensorOf(v1::LAYOUT_NCX, {1}), BytesOf({1})).status.ok());
}

TEST(SessionAttacks, RepliesCountUntilTheyAreAcknowledged) {
  TestServer server;
  NetworkClient client(server.channel(), OpenWithQuota(8 * kMiB));
  client.Load("net", kRelu);
  ChangeMetadata change = client.session().Next();
  const v1::RunProgramRequest request = RunOf(kMiB / 4);
  const auto run = [&] {
    return SessionClient::Call(&client.stub(), &NetworkClient::Stub::RunProgram,
                               request, change);
  };
  int64_t committed = change.acknowledged;
  SessionReply<v1::RunProgramResponse> reply;
  for (reply = run(); reply.status.ok() && committed < 20; reply = run()) {
    committed = change.sequence++;
    change.call_id = NewCallId();
  }
  EXPECT_EQ(committed, 8);  // The program's, and 7 replies of a MiB.
  ExpectRefused(reply, grpc::StatusCode::RESOURCE_EXHAUSTED, "session");
  EXPECT_NE(reply.trailers.pushback_ms, "");
  EXPECT_LE(MetricOf(server, "convgrad_kept_bytes"), 8 * kMiB);
  EXPECT_GE(MetricOf(server, "convgrad_kept_bytes"), 7 * kMiB);
  // The same call continues after an acknowledgement.
  change.acknowledged = committed;
  EXPECT_TRUE(run().status.ok());
  EXPECT_LE(MetricOf(server, "convgrad_kept_bytes"), 2 * kMiB);
}

TEST(SessionAttacks, NamesCount) {
  TestServer server;
  SessionClient client(server.channel(), OpenWithQuota(kMiB));
  v1::PutTensorsRequest put;
  put.add_payloads("");
  for (int i = 0; i < 1000; ++i) {
    v1::NamedPut* named = put.add_tensors();
    named->set_name(absl::StrCat(std::string(100, 'x'), i));
    *named->mutable_tensor() = TensorOf(v1::LAYOUT_NCX, {0, 1});
    named->mutable_tensor()->mutable_inline_()->set_payload_index(0);
  }
  EXPECT_TRUE(client.Put(put).status.ok());
  for (v1::NamedPut& named : *put.mutable_tensors()) {
    named.set_name(named.name() + "y");
  }
  ExpectRefused(client.Put(put), grpc::StatusCode::RESOURCE_EXHAUSTED,
                "session");
  // A change that only drops names is never refused.
  v1::DropTensorsRequest drop;
  drop.set_all(true);
  using Stub = v1::ConvGradSessions::Stub;
  EXPECT_TRUE(client.Change<Stub>(&client.stub(), &Stub::DropTensors, drop)
                  .status.ok());
  EXPECT_LT(MetricOf(server, "convgrad_kept_bytes"), 4096);
}

// A snapshot keeps no longer names, so the session would never be durable.
TEST(SessionAttacks, AnUpdateMakesNoTooLongNames) {
  TestServer server;
  NetworkClient client(server.channel());
  const std::string longest(255, 'x');
  const std::string state = longest.substr(0, 255 - 16);  // "#momentum_buffer"
  for (const std::string& name : {longest, state, state + "y"}) {
    client.Put(name, {1}, {1});
  }
  client.Put(state + "#gradient", {1}, {1});
  client.Put(state + "y#gradient", {1}, {1});
  v1::UpdateParametersRequest request;
  request.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_SGD);
  auto* group = request.add_groups();
  group->set_momentum(0.9);
  group->add_parameters(state + "y");
  ExpectRefused(client.Update(request), grpc::StatusCode::INVALID_ARGUMENT,
                state + "y#momentum_buffer");
  group->set_parameters(0, state);
  request.set_ema_decay(0.5);
  request.add_averaged(longest);
  ExpectRefused(client.Update(request), grpc::StatusCode::INVALID_ARGUMENT,
                longest + "#ema");
  request.clear_averaged();
  EXPECT_TRUE(client.Update(request).status.ok());
}

TEST(SessionAttacks, ASessionHasSoManyTensors) {
  TestServer server;
  SessionClient client(server.channel());
  v1::PutTensorsRequest put;
  put.add_payloads("");
  for (int i = 0; i < 4096; ++i) {
    v1::NamedPut* named = put.add_tensors();
    named->set_name(absl::StrCat(i));
    *named->mutable_tensor() = TensorOf(v1::LAYOUT_NCX, {0, 1});
    named->mutable_tensor()->mutable_inline_()->set_payload_index(0);
  }
  for (int round = 0; round < 5; ++round) {
    const auto reply = client.Put(put);
    EXPECT_EQ(reply.status.ok(), round < 4) << reply.status.error_message();
    for (v1::NamedPut& named : *put.mutable_tensors()) {
      named.set_name(named.name() + "y");
    }
  }
  // The list is read in pages, in the order of names.
  v1::ListTensorsRequest list;
  list.set_page_size(10000);
  std::vector<std::string> names;
  SessionReply<v1::ListTensorsResponse> page;
  do {
    using Stub = v1::ConvGradSessions::Stub;
    page = SessionClient::Call(&client.stub(), &Stub::ListTensors, list,
                               {client.id()});
    ASSERT_TRUE(page.status.ok()) << page.status.error_message();
    for (const auto& info : page.response.tensors()) {
      names.push_back(info.name());
    }
    list.set_after(names.back());
  } while (page.response.has_more());
  EXPECT_EQ(names.size(), 16384u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(SessionAttacks, ATapeCountsItsProgram) {
  TestServer server;
  NetworkClient client(server.channel());
  std::string text = "input x\n";
  for (int i = 0; i < 300; ++i) {
    absl::StrAppend(&text, std::string(100, 'v'), i, " = relu(",
                    i == 0 ? "x" : absl::StrCat(std::string(100, 'v'), i - 1),
                    ")\n");
  }
  absl::StrAppend(&text, "output ", std::string(100, 'v'), "299\n");
  client.Load("net", text);
  const int64_t program = MetricOf(server, "convgrad_kept_bytes");
  EXPECT_GT(program, 300 * 100 * 2);
  const auto run = client.Run(RunOf(1, "tape"));
  ASSERT_TRUE(run.status.ok()) << run.status.error_message();
  v1::DropProgramsRequest drop;
  drop.add_programs("net");
  ASSERT_TRUE(
      client.session()
          .Change(&client.stub(), &NetworkClient::Stub::DropPrograms, drop)
          .status.ok());
  // The tape still needs the program.
  EXPECT_GT(MetricOf(server, "convgrad_kept_bytes"), program);
}

TEST(SessionAttacks, ResumingDropsTapes) {
  TestServer server;
  NetworkClient client(server.channel());
  client.Load("net", kRelu);
  ASSERT_TRUE(client.Run(RunOf(kMiB / 4, "tape")).status.ok());
  EXPECT_EQ(MetricOf(server, "convgrad_kept_tapes"), 1);
  v1::ResumeSessionRequest resume;
  resume.set_session_id(client.session().id());
  grpc::ClientContext context;
  v1::SessionResponse response;
  ASSERT_TRUE(
      client.session().stub().ResumeSession(&context, resume, &response).ok());
  EXPECT_EQ(response.number(), client.session().number());
  EXPECT_EQ(MetricOf(server, "convgrad_kept_tapes"), 0);
  client.session().Failed();  // The next epoch.
  client.Put("x", {1}, {1});
}

TEST(SessionAttacks, AnAdminClosesByHandle) {
  TestServer server;
  SessionClient client(server.channel());
  grpc::ClientContext context;
  v1::ListSessionsResponse list;
  ASSERT_TRUE(client.stub()
                  .ListSessions(&context, v1::ListSessionsRequest(), &list)
                  .ok());
  ASSERT_EQ(list.sessions_size(), 1);
  EXPECT_EQ(list.sessions(0).handle().size(), 16u);
  v1::CloseSessionRequest close;
  v1::CloseSessionResponse closed;
  close.set_handle("0123456789abcdef");
  grpc::ClientContext wrong, right;
  EXPECT_EQ(client.stub().CloseSession(&wrong, close, &closed).error_code(),
            grpc::StatusCode::NOT_FOUND);
  close.set_handle(list.sessions(0).handle());
  EXPECT_TRUE(client.stub().CloseSession(&right, close, &closed).ok());
  EXPECT_EQ(client.List().status.error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace convgrad
