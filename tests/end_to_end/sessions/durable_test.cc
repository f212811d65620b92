// Tests durable sessions: a real server that is killed and started again.
#include <signal.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/temporary_folder.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

using Floats = std::vector<float>;
using Sessions = v1::ConvGradSessions::Stub;

constexpr char kNever[] = "--snapshot_interval=24h";

v1::Tensor Vector(int64_t size) { return TensorOf(v1::LAYOUT_NCX, {size}); }

class DurableTest : public ::testing::Test {
 protected:
  ~DurableTest() override {
    server_.reset();
    std::filesystem::remove_all(state_dir());
  }

  std::string state_dir() const { return folder_.path() + "/state"; }

  // Starts the server with these flags, or with those of the last start.
  void Start(std::vector<std::string> flags = {}) {
    if (!flags.empty()) flags_ = std::move(flags);
    std::vector<std::string> all = {absl::StrCat("--state_dir=", state_dir()),
                                    "--workers=1", "--threads_per_worker=1"};
    all.insert(all.end(), flags_.begin(), flags_.end());
    server_ = std::make_unique<ChildServer>(all);
    channel_ = grpc::CreateChannel(server_->address(),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::ConvGradSessions::NewStub(channel_);
  }

  void End(int signal) {
    server_->Signal(signal);
    server_->Await();
  }

  // Kills the server as a crash does, and starts it again.
  void KillAndStart() {
    End(SIGKILL);
    Start();
  }

  static v1::OpenSessionRequest Durable() {
    v1::OpenSessionRequest open;
    open.set_durable(true);
    return open;
  }

  // Resumes as a client does that has `epoch`. Sets `resumed_`, and returns the
  // reason of the error; "" if there is none.
  std::string ResumeIn(int64_t epoch, const std::string& id, char call = 'c') {
    v1::ResumeSessionRequest request;
    request.set_session_id(id);
    request.set_epoch(epoch);
    request.set_call_id(std::string(16, call));
    grpc::ClientContext context;
    const bool is_ok = stub_->ResumeSession(&context, request, &resumed_).ok();
    return is_ok ? "" : TrailersOf(context).reason;
  }
  v1::SessionResponse Resume(const std::string& id) {
    EXPECT_EQ(ResumeIn(0, id), "");
    return resumed_;
  }

  SessionReply<v1::SaveStateResponse> Save(const std::string& id) {
    return SessionClient::Call<Sessions>(stub_.get(), &Sessions::SaveState,
                                         v1::SaveStateRequest(), {id});
  }

  v1::ListSessionsResponse List() {
    grpc::ClientContext context;
    v1::ListSessionsResponse response;
    EXPECT_TRUE(
        stub_->ListSessions(&context, v1::ListSessionsRequest(), &response)
            .ok());
    return response;
  }

  grpc::Status Close(const std::string& id, int64_t epoch = 0) {
    v1::CloseSessionRequest request;
    request.set_session_id(id);
    request.set_epoch(epoch);
    grpc::ClientContext context;
    v1::CloseSessionResponse response;
    return stub_->CloseSession(&context, request, &response);
  }

  TemporaryFolder folder_;
  std::vector<std::string> flags_ = {kNever};
  std::unique_ptr<ChildServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Sessions> stub_;
  v1::SessionResponse resumed_;
};

TEST_F(DurableTest, ASavedStateSurvivesSigkill) {
  Start();
  SessionClient before(channel_, Durable());
  v1::PutTensorsRequest put =
      SessionClient::PutOf("a", Vector(3), BytesOf({1, 2, 3}));
  put.set_trainer_state("epoch 1");
  const ChangeMetadata first = before.Next();
  ASSERT_TRUE(SessionClient::Call<Sessions>(stub_.get(), &Sessions::PutTensors,
                                            put, first)
                  .status.ok());
  before.Committed();
  const auto saved = Save(before.id());
  ASSERT_TRUE(saved.status.ok()) << saved.status.error_message();
  EXPECT_EQ(saved.response.number(), 1);
  EXPECT_EQ(saved.durable_number, 1);
  const v1::PutTensorsRequest lost =
      SessionClient::PutOf("b", Vector(1), BytesOf({4}));
  const ChangeMetadata second = {before.id(), 1, 2, NewCallId(), 0};
  ASSERT_TRUE(SessionClient::Call<Sessions>(stub_.get(), &Sessions::PutTensors,
                                            lost, second)
                  .status.ok());

  KillAndStart();
  // The repeat of a durable change gets its stored reply.
  const auto repeat = SessionClient::Call<Sessions>(
      stub_.get(), &Sessions::PutTensors, put, first);
  EXPECT_TRUE(repeat.status.ok()) << repeat.status.error_message();
  EXPECT_EQ(repeat.response.version(), 1);
  // What is lost is refused until the client resumes.
  const auto refused = SessionClient::Call<Sessions>(
      stub_.get(), &Sessions::PutTensors, lost, second);
  EXPECT_EQ(refused.status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(refused.trailers.reason, "RESTORED");
  EXPECT_EQ(refused.number, 1);
  EXPECT_EQ(refused.durable_number, 1);
  const v1::SessionResponse resumed = Resume(before.id());
  EXPECT_EQ(resumed.number(), 1);
  EXPECT_EQ(resumed.durable_number(), 1);
  EXPECT_TRUE(resumed.durable());
  EXPECT_EQ(resumed.trainer_state(), "epoch 1");
  EXPECT_GT(resumed.epoch(), 1);
  const ChangeMetadata again = {before.id(), resumed.epoch(), 2, second.call_id,
                                0};
  EXPECT_TRUE(SessionClient::Call<Sessions>(stub_.get(), &Sessions::PutTensors,
                                            lost, again)
                  .status.ok());
  SessionClient after(channel_, resumed);
  EXPECT_EQ(FloatsOf(after.Get("a").response.payloads(0)), Floats({1, 2, 3}));
  EXPECT_EQ(FloatsOf(after.Get("b").response.payloads(0)), Floats({4}));
}

TEST_F(DurableTest, ALateCallOfAnEarlierEpochIsTakenOver) {
  Start();
  const SessionClient before(channel_, Durable());
  KillAndStart();
  Resume(before.id());
  const auto late = SessionClient::Call<Sessions>(
      stub_.get(), &Sessions::PutTensors,
      SessionClient::PutOf("a", Vector(1), BytesOf({1})), before.Next());
  EXPECT_EQ(late.trailers.reason, "TAKEN_OVER");
}

TEST_F(DurableTest, ARestartDoesNotHideATakeOver) {
  Start();
  const SessionClient first(channel_, Durable());
  const std::string& id = first.id();
  const int64_t second = Resume(id).epoch();
  KillAndStart();
  // The first client neither changes, resumes nor closes it.
  const auto late = SessionClient::Call<Sessions>(
      stub_.get(), &Sessions::PutTensors,
      SessionClient::PutOf("a", Vector(1), BytesOf({1})), first.Next());
  EXPECT_EQ(late.trailers.reason, "TAKEN_OVER");
  EXPECT_EQ(ResumeIn(1, id, 'd'), "TAKEN_OVER");
  EXPECT_EQ(Close(id, /*epoch=*/1).error_code(), grpc::FAILED_PRECONDITION);
  ASSERT_EQ(ResumeIn(second, id, 'e'), "");
  const int64_t third = resumed_.epoch();
  KillAndStart();
  // The second client may not have the answer, and repeats the call.
  EXPECT_EQ(ResumeIn(second, id, 'e'), "");
  EXPECT_EQ(ResumeIn(third, id, 'f'), "TAKEN_OVER");
  EXPECT_TRUE(Close(id, resumed_.epoch()).ok());
}

TEST_F(DurableTest, ReadsThatWaitForALostChangeAreRestored) {
  Start();
  const SessionClient before(channel_, Durable());
  KillAndStart();
  grpc::ClientContext context;
  context.AddMetadata(kSessionKey, before.id());
  context.AddMetadata(kAfterKey, "1");
  v1::ListTensorsResponse response;
  EXPECT_EQ(stub_->ListTensors(&context, v1::ListTensorsRequest(), &response)
                .error_code(),
            grpc::FAILED_PRECONDITION);
  EXPECT_EQ(TrailersOf(context).reason, "RESTORED");
}

TEST_F(DurableTest, EpochsGrowWithEachStartWithoutASnapshotBetween) {
  Start();
  const SessionClient before(channel_, Durable());
  int64_t last = 1;
  for (int i = 0; i < 3; ++i) {
    KillAndStart();
    const int64_t epoch = Resume(before.id()).epoch();
    EXPECT_GT(epoch, last);
    last = epoch + 1;  // As if a change had failed.
  }
}

TEST_F(DurableTest, ADrainSavesEverySession) {
  Start();
  SessionClient one(channel_, Durable());
  SessionClient other(channel_, Durable());
  ASSERT_TRUE(one.Put("a", Vector(1), BytesOf({1})).status.ok());
  ASSERT_TRUE(other.Put("a", Vector(1), BytesOf({2})).status.ok());
  End(SIGTERM);
  Start();
  for (const auto& [client, value] :
       {std::pair(&one, 1.0f), std::pair(&other, 2.0f)}) {
    const v1::SessionResponse resumed = Resume(client->id());
    EXPECT_EQ(resumed.number(), 1);
    SessionClient after(channel_, resumed);
    EXPECT_EQ(FloatsOf(after.Get("a").response.payloads(0)), Floats({value}));
  }
}

TEST_F(DurableTest, TheIntervalSavesWithoutBeingAsked) {
  Start({"--snapshot_interval=20ms"});
  SessionClient client(channel_, Durable());
  auto reply = client.Put("a", Vector(1), BytesOf({1}));
  EXPECT_EQ(reply.number, 1);
  const absl::Time give_up = absl::Now() + absl::Seconds(60);
  int64_t durable = reply.durable_number;
  while (durable < 1 && absl::Now() < give_up) {
    durable = client.List().durable_number;
  }
  EXPECT_EQ(durable, 1);
  server_->AwaitMetric("convgrad_snapshots_total{outcome=\"failed\"} 0");
  server_->AwaitMetric("convgrad_undurable_age_seconds 0");
}

TEST_F(DurableTest, AClosedSessionIsOffTheDisk) {
  Start();
  const SessionClient client(channel_, Durable());
  EXPECT_FALSE(std::filesystem::is_empty(state_dir() + "/sessions"));
  EXPECT_TRUE(Close(client.id()).ok());
  EXPECT_TRUE(std::filesystem::is_empty(state_dir() + "/sessions"));
  const SessionClient unused(channel_, Durable());
  KillAndStart();
  EXPECT_TRUE(Close(unused.id()).ok());
  EXPECT_TRUE(std::filesystem::is_empty(state_dir() + "/sessions"));
  EXPECT_EQ(Close(unused.id()).error_code(), grpc::NOT_FOUND);
}

TEST_F(DurableTest, ListsNameSessionsThatAreOnlyOnDisk) {
  Start();
  v1::OpenSessionRequest open = Durable();
  open.set_name("digits");
  SessionClient client(channel_, open);
  ASSERT_TRUE(client.Put("a", Vector(1), BytesOf({1})).status.ok());
  EXPECT_FALSE(List().sessions(0).on_disk());
  End(SIGTERM);
  Start();
  const v1::ListSessionsResponse list = List();
  ASSERT_EQ(list.sessions_size(), 1);
  const v1::SessionInfo& info = list.sessions(0);
  EXPECT_TRUE(info.on_disk());
  EXPECT_TRUE(info.durable());
  EXPECT_EQ(info.name(), "digits");
  EXPECT_EQ(info.number(), 1);
  EXPECT_EQ(info.durable_number(), 1);
  EXPECT_EQ(info.tensors(), 1);
  server_->AwaitMetric("convgrad_sessions_on_disk 1");
  Resume(client.id());
  EXPECT_FALSE(List().sessions(0).on_disk());
}

TEST_F(DurableTest, TheLeaseTakesASessionFromMemoryOnly) {
  Start({"--snapshot_interval=20ms"});
  v1::OpenSessionRequest open = Durable();
  open.set_lease_seconds(1);
  SessionClient client(channel_, open);
  ASSERT_TRUE(client.Put("a", Vector(1), BytesOf({1})).status.ok());
  server_->AwaitMetric("convgrad_sessions_on_disk 1");
  server_->AwaitMetric("convgrad_kept_bytes 0");
  const auto refused = SessionClient::Call<Sessions>(
      stub_.get(), &Sessions::PutTensors,
      SessionClient::PutOf("b", Vector(1), BytesOf({1})), client.Next());
  EXPECT_EQ(refused.trailers.reason, "RESTORED");
  SessionClient after(channel_, Resume(client.id()));
  EXPECT_EQ(after.number(), 1);
  EXPECT_EQ(FloatsOf(after.Get("a").response.payloads(0)), Floats({1}));
  // A session that was restored is written again.
  ASSERT_TRUE(after.Put("b", Vector(1), BytesOf({2})).status.ok());
  EXPECT_EQ(Save(after.id()).response.number(), 2);
}

TEST_F(DurableTest, ARepeatedOpenFindsTheSessionOnDisk) {
  Start();
  v1::OpenSessionRequest open = Durable();
  open.set_open_id(NewCallId());
  SessionClient first(channel_, open);
  ASSERT_TRUE(first.Put("a", Vector(1), BytesOf({1})).status.ok());
  ASSERT_TRUE(Save(first.id()).status.ok());
  KillAndStart();
  const SessionClient again(channel_, open);
  EXPECT_EQ(again.id(), first.id());
  EXPECT_EQ(List().sessions_size(), 1);
}

TEST_F(DurableTest, ARepeatedOpenThatCannotSaveLeavesTheSession) {
  Start();
  v1::OpenSessionRequest open = Durable();
  open.set_open_id(std::string(16, 'o'));
  SessionClient client(channel_, open);
  ASSERT_TRUE(client.Put("a", Vector(1), BytesOf({1})).status.ok());
  std::filesystem::rename(state_dir(), state_dir() + "-away");
  grpc::ClientContext context;
  v1::SessionResponse response;
  EXPECT_FALSE(stub_->OpenSession(&context, open, &response).ok());
  EXPECT_EQ(List().sessions_size(), 1);
  std::filesystem::rename(state_dir() + "-away", state_dir());
  EXPECT_EQ(Save(client.id()).response.number(), 1);
}

TEST_F(DurableTest, SessionsOnDiskCountInTheLimitOfAClient) {
  Start({kNever, "--max_client_sessions=1"});
  const SessionClient first(channel_, Durable());
  KillAndStart();
  v1::OpenSessionRequest open = Durable();
  open.set_open_id(NewCallId());
  grpc::ClientContext context;
  v1::SessionResponse response;
  const grpc::Status status = stub_->OpenSession(&context, open, &response);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("on disk"), std::string::npos)
      << status.error_message();
}

TEST_F(DurableTest, DamagedSnapshotsAreRefusedAndNotStartedBlank) {
  Start();
  SessionClient client(channel_, Durable());
  ASSERT_TRUE(client.Put("a", Vector(64), std::string(256, 'x')).status.ok());
  ASSERT_TRUE(Save(client.id()).status.ok());
  End(SIGKILL);
  namespace fs = std::filesystem;
  for (const auto& file : fs::recursive_directory_iterator(state_dir())) {
    const bool is_of_session =
        file.path().string().find("/sessions/") != std::string::npos;
    if (file.is_regular_file() && is_of_session) fs::resize_file(file, 100);
  }
  Start();
  v1::SessionResponse damaged;
  damaged.set_session_id(client.id());
  SessionClient after(channel_, damaged);
  const auto reply = after.Get("a");
  EXPECT_EQ(reply.status.error_code(), grpc::DATA_LOSS)
      << reply.status.error_message();
  EXPECT_EQ(reply.trailers.reason, "MALFORMED");
  EXPECT_EQ(Close(client.id()).error_code(), grpc::DATA_LOSS);
}

TEST_F(DurableTest, OneServerUsesAFolder) {
  Start();
  const Exit exit = RunServer({absl::StrCat("--state_dir=", state_dir()),
                               "--listen=127.0.0.1:0", "--metrics_listen="});
  EXPECT_EQ(exit.code, 2);
  EXPECT_NE(exit.output.find("--state_dir"), std::string::npos) << exit.output;
}

TEST(Durable, NeedsAFolder) {
  ChildServer server({});
  const auto stub = v1::ConvGradSessions::NewStub(grpc::CreateChannel(
      server.address(), grpc::InsecureChannelCredentials()));
  v1::OpenSessionRequest open;
  open.set_durable(true);
  open.set_open_id(NewCallId());
  grpc::ClientContext context;
  v1::SessionResponse response;
  const grpc::Status status = stub->OpenSession(&context, open, &response);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_NE(status.error_message().find("--state_dir"), std::string::npos);
}

}  // namespace
}  // namespace convgrad
