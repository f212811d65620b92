// Tests puts and gets by stream, over real sockets.
#include "tests/end_to_end/sessions/tensor_stream.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/tensor_digest.h"
#include "tests/end_to_end/peers/cutting_proxy.h"

namespace convgrad {
namespace {

Config SmallMessages() {
  Config config = TestConfig();
  config.memory_budget_bytes = 512 * kMiB;
  config.max_message_bytes = kMiB;
  config.min_client_rate = 0;
  config.unary_idle_timeout = absl::Seconds(60);
  return config;
}

class TensorStreamTest : public ::testing::Test {
 protected:
  explicit TensorStreamTest(const Config& config = SmallMessages())
      : server_(config) {}

  void TearDown() override {
    // Expects that other clients are served and that nothing is held once the
    // session is closed.
    const auto put =
        client_.Put("last", FloatsOfBytes(4096), RandomBytes(4096, 1));
    EXPECT_TRUE(put.status.ok()) << put.status.error_message();
    Close(&client_);
    server_.ExpectNothingHeld();
  }

  static void Close(SessionClient* client) {
    grpc::ClientContext context;
    v1::CloseSessionRequest close;
    close.set_session_id(client->id());
    v1::CloseSessionResponse closed;
    EXPECT_TRUE(client->stub().CloseSession(&context, close, &closed).ok());
  }

  // Makes the session's next change, which may fail.
  SessionReply<v1::PutTensorsResponse> Put(
      const std::vector<v1::PutTensorsStreamRequest>& messages) {
    const auto reply = SendAll(server_.channel(), client_.Next(), messages);
    reply.status.ok() ? client_.Committed() : client_.Failed();
    return reply;
  }
  Got Get(const v1::GetTensorsRequest& request) {
    return GetStream(server_.channel(), client_.id(), request).ReadAll();
  }

  void ExpectRefused(const std::vector<v1::PutTensorsStreamRequest>& messages,
                     grpc::StatusCode code, const std::string& field) {
    const int before = client_.List().response.tensors_size();
    const auto reply = Put(messages);
    EXPECT_EQ(reply.status.error_code(), code) << reply.status.error_message();
    EXPECT_EQ(reply.trailers.field, field) << reply.status.error_message();
    EXPECT_EQ(reply.number, client_.number());
    EXPECT_EQ(client_.List().response.tensors_size(), before);
  }

  TestServer server_;
  SessionClient client_{server_.channel()};
};

TEST_F(TensorStreamTest, TakesAndGivesWhatNoMessageHolds) {
  const std::string large = RandomBytes(kLarge, 1);
  const std::string small = RandomBytes(4096, 2);
  std::vector<v1::PutTensorsStreamRequest> messages(1);
  v1::PutTensorsRequest* header = messages[0].mutable_header();
  AddStreamed("empty", FloatsOfBytes(0), header);
  AddStreamed("large", FloatsOfBytes(kLarge), header);
  AddStreamed("none", FloatsOfBytes(0), header);
  AddStreamed("small", FloatsOfBytes(4096), header);
  AddFrames(1, large, &messages);
  AddFrames(3, small, &messages);
  const auto put = Put(messages);
  ASSERT_TRUE(put.status.ok()) << put.status.error_message();
  EXPECT_EQ(put.response.version(), 1);
  EXPECT_EQ(put.number, 1);

  EXPECT_EQ(client_.Get("large").status.error_code(), grpc::RESOURCE_EXHAUSTED);
  const Got got = Get(NamesOf({"none", "small", "large", "empty", "large"}));
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.bytes, std::vector<std::string>({"", small, large, "", large}));
  EXPECT_EQ(got.header.number(), 1);
  EXPECT_EQ(got.header.tensors(2).name(), "large");
  EXPECT_EQ(got.header.tensors(2).version(), 1);
  EXPECT_TRUE(got.header.tensors(2).tensor().has_stream());
}

TEST_F(TensorStreamTest, GivesOtherLayoutsDtypesAndSlices) {
  const std::string bytes = RandomBytes(kLarge, 3);
  std::vector<v1::PutTensorsStreamRequest> messages(1);
  AddStreamed("w", TensorOf(v1::LAYOUT_OIX, {9, 256, 1024}),
              messages[0].mutable_header());
  AddFrames(0, bytes, &messages);
  ASSERT_TRUE(Put(messages).status.ok());
  v1::GetTensorsRequest request = NamesOf({"w", "w"});
  request.mutable_tensors(0)->set_layout(v1::LAYOUT_OXI);
  request.mutable_tensors(1)->set_first_item(2);
  request.mutable_tensors(1)->set_items(5);
  const Got got = Get(request);
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.bytes[1], bytes.substr(2 * kMiB, 5 * kMiB));
  // Element (o, i, x) of OIX is (o, x, i) of OXI.
  ASSERT_EQ(got.bytes[0].size(), bytes.size());
  const auto at = [](const std::string& from, int64_t element) {
    return from.substr(4 * element, 4);
  };
  for (int64_t o = 0; o < 9; ++o) {
    for (const auto& [i, x] : {std::pair{1, 7}, {255, 1023}, {17, 0}}) {
      EXPECT_EQ(at(got.bytes[0], (o * 1024 + x) * 256 + i),
                at(bytes, (o * 256 + i) * 1024 + x));
    }
  }
}

TEST_F(TensorStreamTest, ADigestIsCheckedAndStandsForItsBytes) {
  const std::string bytes = RandomBytes(kLarge, 4);
  const std::string digest =
      DigestOf({DataType::kF32, Layout::kNCX, {kLarge / 4096, 1024}}, bytes);
  std::vector<v1::PutTensorsStreamRequest> messages = PutOfLarge(bytes);
  messages[0].mutable_header()->mutable_tensors(0)->set_digest(
      std::string(32, 'd'));
  ExpectRefused(messages, grpc::INVALID_ARGUMENT, "tensors[0].digest");
  messages[0].mutable_header()->mutable_tensors(0)->set_digest(digest);
  ASSERT_TRUE(Put(messages).status.ok());

  messages = PutOfLarge(bytes);
  v1::NamedPut* known = messages[0].mutable_header()->add_tensors();
  known->set_name("y");
  known->set_digest(digest);
  ASSERT_TRUE(Put(messages).status.ok());
  EXPECT_EQ(Get(NamesOf({"y"})).bytes[0], bytes);
  known->set_digest(std::string(32, 'd'));
  ExpectRefused(messages, grpc::NOT_FOUND, "tensors[1].digest");
}

TEST_F(TensorStreamTest, ARepeatGetsTheOneReply) {
  const auto messages = PutOfLarge(RandomBytes(kLarge, 5));
  const ChangeMetadata change = client_.Next();
  const auto first = SendAll(server_.channel(), change, messages);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  client_.Committed();
  // A repeat gets its reply without sending the tensor.
  for (const auto& again :
       {messages, std::vector<v1::PutTensorsStreamRequest>()}) {
    const auto repeat = SendAll(server_.channel(), change, again);
    EXPECT_TRUE(repeat.status.ok()) << repeat.status.error_message();
    EXPECT_EQ(repeat.response.version(), 1);
    EXPECT_EQ(repeat.number, 1);
  }
}

TEST_F(TensorStreamTest, WaitsForItsTurn) {
  const std::string bytes = RandomBytes(kLarge, 6);
  ChangeMetadata second = client_.Next();
  ++second.sequence;
  PutStream stream(server_.channel(), second);
  const auto messages = PutOfLarge(bytes);
  // The server doesn't read the stream before its turn, so writing more would
  // block.
  EXPECT_TRUE(stream.Write(messages[0]));
  ASSERT_TRUE(
      client_.Put("x", FloatsOfBytes(4096), RandomBytes(4096, 7)).status.ok());
  for (size_t i = 1; i < messages.size(); ++i) {
    EXPECT_TRUE(stream.Write(messages[i]));
  }
  stream.HalfClose();
  const auto reply = stream.Await();
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_EQ(reply.number, 2);
  client_.Committed();
  EXPECT_EQ(Get(NamesOf({"x"})).bytes[0], bytes);
}

TEST_F(TensorStreamTest, NamesWhatIsWrong) {
  const std::string bytes = RandomBytes(kLarge, 8);
  const std::vector<v1::PutTensorsStreamRequest> good = PutOfLarge(bytes);
  // Returns `good` with one message replaced.
  const auto with = [&](size_t i, const v1::PutTensorsStreamRequest& message) {
    auto messages = good;
    messages[i] = message;
    return messages;
  };
  ExpectRefused({}, grpc::INVALID_ARGUMENT, "header");
  ExpectRefused({good[0], good[1]}, grpc::INVALID_ARGUMENT, "tensors[0]");
  ExpectRefused({good[1]}, grpc::INVALID_ARGUMENT, "part");
  ExpectRefused(with(1, good[0]), grpc::INVALID_ARGUMENT, "part");
  ExpectRefused(with(1, good[2]), grpc::INVALID_ARGUMENT, "frame");
  ExpectRefused(with(2, good[1]), grpc::INVALID_ARGUMENT, "frame");
  ExpectRefused(with(1, FrameOf(1, 0, bytes.substr(0, kFrame))),
                grpc::INVALID_ARGUMENT, "frame");
  ExpectRefused(with(1, FrameOf(0, 0, bytes.substr(0, kFrame - 1))),
                grpc::INVALID_ARGUMENT, "frame");
  v1::PutTensorsStreamRequest message = good[1];
  message.add_payloads("more");
  ExpectRefused(with(1, message), grpc::INVALID_ARGUMENT, "payloads");
  message = good[0];
  message.add_payloads("more");
  ExpectRefused(with(0, message), grpc::INVALID_ARGUMENT, "payloads");
  message = good[0];
  message.mutable_header()->add_payloads("more");
  ExpectRefused(with(0, message), grpc::INVALID_ARGUMENT, "header.payloads");
  message = good[0];
  message.mutable_header()
      ->mutable_tensors(0)
      ->mutable_tensor()
      ->mutable_inline_();
  ExpectRefused(with(0, message), grpc::UNIMPLEMENTED,
                "tensors[0].tensor.source");
  message = good[0];
  AddStreamed("x", FloatsOfBytes(0), message.mutable_header());
  ExpectRefused(with(0, message), grpc::INVALID_ARGUMENT, "tensors[1].name");
  auto messages = good;
  messages.push_back(good.back());
  ExpectRefused(messages, grpc::INVALID_ARGUMENT, "frame");
}

TEST_F(TensorStreamTest, IsRefusedBeforeItsFirstFrame) {
  const auto refusal = [&](SessionClient* client, int64_t bytes) {
    PutStream stream(server_.channel(), client->Next());
    v1::PutTensorsStreamRequest header;
    AddStreamed("x", FloatsOfBytes(bytes), header.mutable_header());
    stream.Write(header);
    return stream.Await();
  };
  auto reply = refusal(&client_, int64_t{1} << 40);
  EXPECT_EQ(reply.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED");
  EXPECT_EQ(reply.trailers.field, "kept bytes");
  client_.Failed();
  v1::OpenSessionRequest open;
  open.set_quota_bytes(kMiB);
  SessionClient small(server_.channel(), open);
  reply = refusal(&small, kLarge);
  EXPECT_EQ(reply.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reply.trailers.field, "session");
  Close(&small);
  // A read can't put.
  PutStream read(server_.channel(), {client_.id()});
  read.Write(PutOfLarge(std::string(kLarge, '\0'))[0]);
  EXPECT_EQ(read.Await().trailers.field, "session");
}

TEST_F(TensorStreamTest, WhatStopsHalfWayChangesNothing) {
  const std::string bytes = RandomBytes(kLarge, 9);
  const auto messages = PutOfLarge(bytes);
  for (size_t sent = 0; sent <= messages.size(); ++sent) {
    const ChangeMetadata change = client_.Next();
    PutStream stream(server_.channel(), change);
    for (size_t i = 0; i < sent; ++i) EXPECT_TRUE(stream.Write(messages[i]));
    stream.Cancel();
    EXPECT_EQ(stream.Await().status.error_code(), grpc::CANCELLED);
    // The client doesn't know the outcome, so it sends the same change again.
    const auto repeat = SendAll(server_.channel(), change, messages);
    if (repeat.status.ok()) {
      client_.Committed();
    } else {
      EXPECT_EQ(repeat.trailers.reason, "EPOCH_ENDED");
      EXPECT_EQ(client_.List().response.number(), client_.number());
      client_.Failed();
      ASSERT_TRUE(Put(messages).status.ok());
    }
    EXPECT_EQ(Get(NamesOf({"x"})).bytes[0], bytes);
    ASSERT_TRUE(client_.Drop("x").status.ok());
  }
}

// The connection is cut at each stage: in the header, in each frame, before the
// half-close, and in the answer.
TEST_F(TensorStreamTest, ConnectionsAreCutAtEachStage) {
  CuttingProxy proxy(server_.address());
  const std::string bytes = RandomBytes(kLarge, 10);
  const auto messages = PutOfLarge(bytes);
  std::vector<std::pair<CuttingProxy::Direction, int64_t>> cuts;
  for (const int64_t at : {int64_t{300}, kFrame / 2, kFrame + kMiB,
                           2 * kFrame + kMiB / 2, kLarge}) {
    cuts.emplace_back(CuttingProxy::Direction::kToServer, at);
  }
  for (const int64_t at : {1, 100, 200, 250}) {
    cuts.emplace_back(CuttingProxy::Direction::kToClient, at);
  }
  int lost = 0;
  for (const auto& [direction, at] : cuts) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(
        proxy.address(), grpc::InsecureChannelCredentials(), arguments);
    proxy.CutAfter(direction, at);
    const ChangeMetadata change = client_.Next();
    const auto first = SendAll(channel, change, messages);
    lost += first.status.ok() ? 0 : 1;
    const auto repeat = SendAll(server_.channel(), change, messages);
    if (repeat.status.ok()) {
      client_.Committed();
    } else {
      EXPECT_EQ(repeat.trailers.reason, "EPOCH_ENDED") << at;
      client_.Failed();
      ASSERT_TRUE(Put(messages).status.ok()) << at;
    }
    EXPECT_EQ(Get(NamesOf({"x"})).bytes[0], bytes) << at;
  }
  EXPECT_GE(lost, 6);
}

TEST_F(TensorStreamTest, AGetSeesOneNumber) {
  const std::string before = RandomBytes(kLarge, 11);
  const std::string after = RandomBytes(kLarge, 12);
  ASSERT_TRUE(Put(PutOfLarge(before)).status.ok());
  GetStream stream(server_.channel(), client_.id(), NamesOf({"x", "x"}));
  v1::GetTensorsStreamResponse message;
  ASSERT_TRUE(stream.Read(&message));
  EXPECT_EQ(message.header().number(), 1);
  ASSERT_TRUE(Put(PutOfLarge(after)).status.ok());
  std::string bytes;
  while (stream.Read(&message)) bytes += message.payloads(0);
  EXPECT_EQ(bytes, before + before);
  EXPECT_EQ(Get(NamesOf({"x"})).bytes[0], after);
}

TEST_F(TensorStreamTest, AGetMayBeLeft) {
  ASSERT_TRUE(Put(PutOfLarge(RandomBytes(kLarge, 13))).status.ok());
  {
    GetStream stream(server_.channel(), client_.id(), NamesOf({"x", "x"}));
    v1::GetTensorsStreamResponse message;
    ASSERT_TRUE(stream.Read(&message));
    stream.Cancel();
    while (stream.Read(&message)) {
    }
    EXPECT_EQ(stream.Finish().error_code(), grpc::CANCELLED);
  }
  EXPECT_EQ(Get(NamesOf({"z"})).trailers.field, "tensors[0].name");
  EXPECT_EQ(Get(NamesOf({"z"})).status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(
      GetStream(server_.channel(), "", NamesOf({"x"})).ReadAll().trailers.field,
      "session");
}

Config ShortTimes() {
  Config config = SmallMessages();
  config.min_client_rate = 1024 * kMiB;
  config.unary_idle_timeout = absl::Milliseconds(500);
  return config;
}

class SlowTensorStreamTest : public TensorStreamTest {
 protected:
  SlowTensorStreamTest() : TensorStreamTest(ShortTimes()) {}
};

TEST_F(SlowTensorStreamTest, WhoSendsNothingMoreIsRefused) {
  const auto messages = PutOfLarge(RandomBytes(kLarge, 14));
  for (size_t sent = 0; sent < messages.size(); ++sent) {
    PutStream stream(server_.channel(), client_.Next());
    for (size_t i = 0; i < sent; ++i) stream.Write(messages[i]);
    const auto reply = stream.Await();
    EXPECT_EQ(reply.status.error_code(), grpc::DEADLINE_EXCEEDED)
        << reply.status.error_message();
    EXPECT_EQ(reply.trailers.field, "stream");
    EXPECT_EQ(reply.number, client_.number());
    client_.Failed();
  }
}

TEST_F(SlowTensorStreamTest, WhoTakesNothingIsLeft) {
  ASSERT_TRUE(Put(PutOfLarge(RandomBytes(kLarge, 15))).status.ok());
  GetStream stream(server_.channel(), client_.id(),
                   NamesOf(std::vector<std::string>(10, "x")));
  v1::GetTensorsStreamResponse message;
  ASSERT_TRUE(stream.Read(&message));
  ASSERT_TRUE(message.has_header());
  server_.AwaitMetric(
      "grpc_server_handled_total{grpc_code=\"Canceled\",grpc_method="
      "\"GetTensorsStream\",grpc_service=\"convgrad.v1.ConvGradSessions\","
      "grpc_type=\"server_stream\"} 1");
  while (stream.Read(&message)) {
  }
  EXPECT_EQ(stream.Finish().error_code(), grpc::CANCELLED);
}

}  // namespace
}  // namespace convgrad
