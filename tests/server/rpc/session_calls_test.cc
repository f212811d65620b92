// Tests the calls that wait for a session, with a disk that doesn't answer or a
// change that doesn't end.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "gtest/gtest.h"
#include "proto/call_metadata.h"
#include "server/rpc/methods.h"
#include "tests/server/rpc/calls/call_server.h"
#include "tests/server/sessions/no_archive.h"

namespace convgrad {
namespace {

// A disk that answers only when the test says so, and then with an error.
class StuckArchive final : public NoArchive {
 public:
  void Load(const std::shared_ptr<KeptSession>& session) override {
    Ask([session](const absl::Status& outcome) {
      session->FailToRestore(outcome);
    });
  }
  void Save(const std::shared_ptr<KeptSession>& /*session*/,
            Done done) override {
    Ask(std::move(done));
  }
  void Keep(const std::shared_ptr<KeptSession>& /*session*/,
            const std::string& /*name*/, Done done) override {
    Ask(std::move(done));
  }
  void LoadNamed(const std::shared_ptr<KeptSession>& /*session*/,
                 const std::string& /*name*/, Loaded done) override {
    Ask([done](const absl::Status& outcome) { done(outcome); });
  }
  void Drop(const std::shared_ptr<KeptSession>& /*session*/,
            const std::string& /*name*/, Done done) override {
    Ask(std::move(done));
  }
  void Remove(const std::string& /*client*/, const std::string& /*hash*/,
              Done done) override {
    Ask(std::move(done));
  }

  bool is_asked() const { return asked_ > 0; }
  // The number of questions so far.
  int asked() const { return asked_; }
  // Answers the oldest question.
  void Answer(const absl::Status& outcome) {
    const Done done = std::move(questions_.front());
    questions_.erase(questions_.begin());
    done(outcome);
  }
  void Fail() {
    for (const Done& done : std::exchange(questions_, {})) {
      done(absl::InternalError("too late"));
    }
  }

 private:
  void Ask(Done done) {
    questions_.push_back(std::move(done));
    ++asked_;
  }

  std::vector<Done> questions_;
  std::atomic<int> asked_ = 0;
};

constexpr absl::Duration kPatience = absl::Seconds(5);

// Lets other threads run until `condition` is true, for `time` at most.
void AwaitFor(absl::Duration time, const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + time;
  Await([&] { return condition() || absl::Now() > end; });
}

// The session of the call: in memory, with a running change, or only on disk.
enum class Place { kMemory, kBusy, kDisk };

struct Case {
  const char* method;
  Place place;
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return std::string(info.param.method) +
         (info.param.place == Place::kDisk   ? "OnDisk"
          : info.param.place == Place::kBusy ? "BehindAChange"
                                             : "");
}

Call* MakeCall(const CallServices& services,
               grpc::GenericCallbackServerContext* context) {
  const Method& method = FindMethod(context->method());
  return method.make(method, services, context);
}

// Opens a durable session.
grpc::Status OpenDurable(CallServer* server, grpc::ClientContext* context) {
  v1::OpenSessionRequest request;
  request.set_open_id(std::string(16, 'n'));
  request.set_durable(true);
  v1::SessionResponse session;
  return v1::ConvGradSessions::NewStub(server->channel())
      ->OpenSession(context, request, &session);
}

class LastStatus final : public NoObserver {
 public:
  void OnHandled(absl::string_view /*method*/, absl::StatusCode code,
                 absl::Duration /*elapsed*/) override {
    code_ = code;
  }
  absl::StatusCode code() const { return code_; }

 private:
  std::atomic<absl::StatusCode> code_ = absl::StatusCode::kOk;
};

class SessionWaitTest : public ::testing::TestWithParam<Case> {
 protected:
  SessionWaitTest() {
    table().SetArchive(&archive_);
    SessionTable::StoredSession stored;
    stored.settings.id = id_;
    stored.settings.open_id = std::string(16, 'p');
    stored.settings.durable = true;
    EXPECT_TRUE(table().AddStored(stored).ok());
    if (GetParam().place == Place::kDisk) return;
    SessionRequest request;
    request.open_id = std::string(16, 'q');
    request.durable = true;
    const SessionUse use = *table().Open({"test", false, false}, request);
    id_ = use->settings().id;
    if (GetParam().place == Place::kMemory) return;
    busy_ = use.session();
    busy_->Arrive({1, 1, std::string(16, 'b'), 0}, absl::Now(),
                  {absl::InfiniteFuture(), [](const auto& /*runs*/) {}});
  }
  ~SessionWaitTest() override {
    Fail();
    table().SetArchive(nullptr);
  }

  bool Waits() const {
    return archive_.is_asked() || (busy_ && busy_->info().epoch == 2);
  }
  // Ends what the call waits for.
  void Fail() {
    archive_.Fail();
    const auto busy = std::exchange(busy_, nullptr);
    if (!busy) return;
    EXPECT_FALSE(busy->Fail(absl::InternalError("too late"), absl::Now()).ok());
  }

  SessionTable& table() { return *server_.services().sessions; }

  grpc::Status Call() {
    const std::string method = GetParam().method;
    const auto stub = v1::ConvGradSessions::NewStub(server_.channel());
    v1::SessionResponse session;
    if (method == "OpenSession") return OpenDurable(&server_, &context_);
    if (method == "ResumeSession") {
      v1::ResumeSessionRequest request;
      request.set_session_id(id_);
      return stub->ResumeSession(&context_, request, &session);
    }
    if (method == "RenewSession") {
      v1::RenewSessionRequest request;
      request.set_session_id(id_);
      return stub->RenewSession(&context_, request, &session);
    }
    if (method == "CloseSession") {
      v1::CloseSessionRequest request;
      request.set_session_id(id_);
      v1::CloseSessionResponse response;
      return stub->CloseSession(&context_, request, &response);
    }
    context_.AddMetadata(kSessionKey, id_);
    if (method == "SaveState") {
      v1::SaveStateResponse response;
      return stub->SaveState(&context_, {}, &response);
    }
    if (method == "DropState") {
      v1::DropStateRequest request;
      request.set_name("n");
      v1::DropStateResponse response;
      return stub->DropState(&context_, request, &response);
    }
    context_.AddMetadata(kEpochKey, "1");
    context_.AddMetadata(kSequenceKey, "1");
    context_.AddMetadata(kCallIdKey, std::string(16, 'c'));
    v1::RestoreStateRequest request;
    request.set_name("n");
    v1::RestoreStateResponse response;
    return stub->RestoreState(&context_, request, &response);
  }

  // Closes a session that doesn't exist.
  grpc::Status CloseNone() {
    grpc::ClientContext context;
    v1::CloseSessionRequest request;
    request.set_session_id(std::string(16, 'x'));
    v1::CloseSessionResponse response;
    return v1::ConvGradSessions::NewStub(server_.channel())
        ->CloseSession(&context, request, &response);
  }

  StuckArchive archive_;
  LastStatus last_;
  // The session with the running change.
  std::shared_ptr<KeptSession> busy_;
  std::string id_ = std::string(16, 's');
  grpc::ClientContext context_;
  CallServer server_{MakeCall};
};

INSTANTIATE_TEST_SUITE_P(
    All, SessionWaitTest,
    ::testing::Values(
        Case{"OpenSession", Place::kMemory},
        Case{"ResumeSession", Place::kMemory},
        Case{"ResumeSession", Place::kBusy},
        Case{"ResumeSession", Place::kDisk}, Case{"RenewSession", Place::kDisk},
        Case{"CloseSession", Place::kMemory}, Case{"SaveState", Place::kMemory},
        Case{"SaveState", Place::kDisk}, Case{"DropState", Place::kMemory},
        Case{"RestoreState", Place::kMemory}),
    NameOf);

TEST_P(SessionWaitTest, EndsWhenTheClientLeaves) {
  const int64_t sessions = table().sessions();
  server_.Configure(
      [this](CallServices& services) { services.observer = &last_; });
  server_.services().gate->SetLimits({.calls = 1});
  std::thread client(
      [this] { EXPECT_EQ(Call().error_code(), grpc::StatusCode::CANCELLED); });
  Await([this] { return Waits(); });
  context_.TryCancel();
  client.join();
  AwaitFor(kPatience,
           [this] { return last_.code() == absl::StatusCode::kCancelled; });
  EXPECT_EQ(last_.code(), absl::StatusCode::kCancelled);
  // The disk holds the call, which still counts.
  EXPECT_EQ(CloseNone().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  Fail();
  Fail();  // Answers the removal of a session that wasn't saved.
  grpc::Status after;
  AwaitFor(kPatience, [&] {
    after = CloseNone();
    return after.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED;
  });
  EXPECT_EQ(after.error_code(), grpc::StatusCode::NOT_FOUND);
  // A session that isn't on disk when it opens doesn't stay in memory either.
  EXPECT_LE(table().sessions(), sessions);
}

TEST_P(SessionWaitTest, EndsWithTheDeadlineOfTheServer) {
  server_.ConfigureFlags(
      [](Config& config) { config.default_deadline = absl::Milliseconds(20); });
  std::atomic<bool> has_ended = false;
  grpc::Status status;
  std::thread client([&] {
    status = Call();
    has_ended = true;
  });
  AwaitFor(kPatience, [&] {
    server_.client_watch().Expire(absl::Now());
    return has_ended.load();
  });
  Fail();
  client.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED)
      << status.error_message();
}

TEST(OpeningTwice, FailsAsTheFirstOpeningFailed) {
  StuckArchive archive;
  CallServer server(MakeCall);
  server.services().sessions->SetArchive(&archive);
  grpc::ClientContext contexts[2];
  grpc::Status statuses[2];
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(
        [&, i] { statuses[i] = OpenDurable(&server, &contexts[i]); });
    Await([&] { return archive.asked() == i + 1; });
  }
  archive.Answer(absl::InternalError("a full disk"));
  archive.Answer(absl::OkStatus());
  archive.Answer(absl::OkStatus());  // To the removal after the failure.
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(statuses[0].error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(statuses[1].error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace convgrad
