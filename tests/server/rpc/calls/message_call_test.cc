#include "server/rpc/calls/message_call.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/mutex.h"
#include "backends/core/status.h"
#include "convgrad/v1/session.pb.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/sessions/call_in_flight.h"
#include "tests/server/rpc/calls/call_server.h"
#include "tests/server/sessions/no_archive.h"

namespace convgrad {
namespace {

constexpr char kPath[] = "/puppet";

// A call that records its message and waits until the test ends it.
class PuppetCall final : public MessageCall {
 public:
  using Taken = std::function<void(PuppetCall* call)>;

  PuppetCall(const Method& method, const CallServices& services,
             grpc::GenericCallbackServerContext* context, Taken taken)
      : MessageCall(method, services, context), taken_(std::move(taken)) {}

  void Finish(const absl::Status& status) {
    v1::PutTensorsResponse response;
    response.set_version(7);
    MessageCall::Finish(status, response);
  }

 private:
  absl::Status OnMessage() override {
    ASSIGN_OR_RETURN(const auto request, Parse<v1::PutTensorsRequest>());
    if (session().is_change()) RETURN_IF_ERROR(session().Promise());
    taken_(this);
    return absl::OkStatus();
  }

  const Taken taken_;
};

class MessageCallTest : public ::testing::Test {
 protected:
  // Returns the call whose message arrived as number `index`.
  PuppetCall* Taken(size_t index) {
    MutexLock lock(&mutex_);
    while (taken_.size() <= index) changed_.Wait(&mutex_);
    return taken_[index];
  }
  size_t taken() {
    MutexLock lock(&mutex_);
    return taken_.size();
  }
  std::unique_ptr<CallInFlight> Start(
      const ChangeMetadata& change,
      const std::string& bytes = v1::PutTensorsRequest().SerializeAsString()) {
    return std::make_unique<CallInFlight>(server_.channel(), kPath, bytes,
                                          change);
  }
  // Starts a change of `session_`.
  std::unique_ptr<CallInFlight> StartChange(int64_t sequence,
                                            const std::string& call_id,
                                            const std::string& bytes = "") {
    return Start({session_->settings().id, session_->info().epoch, sequence,
                  std::string(16 - call_id.size(), '0') + call_id, 0},
                 bytes);
  }
  // Takes the rest of the budget.
  Reservation TakeAllMemory() {
    MemoryBudget& budget = server_.budget();
    return *budget.TryReserve(budget.capacity_bytes() - budget.used_bytes());
  }

  const Method method_{
      "", "Puppet", ClientRole::kInfer, SessionRule::kMayChange, "put",
      0,  nullptr};
  Mutex mutex_;
  CondVar changed_;
  std::vector<PuppetCall*> taken_ ABSL_GUARDED_BY(mutex_);
  CallServer server_{[this](const CallServices& services,
                            grpc::GenericCallbackServerContext* context) {
    return new PuppetCall(method_, services, context, [this](PuppetCall* call) {
      MutexLock lock(&mutex_);
      taken_.push_back(call);
      changed_.NotifyAll();
    });
  }};
  SessionUse session_ = server_.Open();
};

// A call whose client sends when the test says so.
class OpenCall {
 public:
  explicit OpenCall(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(channel) {
    context_.AddMetadata(kRequestBytesKey, "10");
    call_ = stub_.PrepareCall(&context_, kPath, &queue_);
    call_->StartCall(this);
    Next();
  }
  void HalfClose() {
    call_->WritesDone(this);
    Next();
  }
  grpc::Status Await() {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return status;
  }

 private:
  void Next() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST_F(MessageCallTest, AnswersAMessage) {
  const auto call = Start({});
  Taken(0)->Finish(absl::OkStatus());
  EXPECT_TRUE(call->Await().status.ok());
  EXPECT_EQ(taken(), 1U);
}

TEST_F(MessageCallTest, EndsWithTheErrorOfItsWork) {
  const auto call = Start({});
  Taken(0)->Finish(absl::NotFoundError("gone"));
  EXPECT_EQ(call->Await().status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(MessageCallTest, ReadsNothingOfWhatIsTooLarge) {
  server_.ConfigureFlags([](Config& config) { config.max_message_bytes = 10; });
  const auto reply = Start({}, std::string(11, '\0'))->Await();
  EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED");
  EXPECT_EQ(taken(), 0U);
}

TEST_F(MessageCallTest, WaitsForItsMemory) {
  Reservation all = TakeAllMemory();
  const auto call = Start({});
  Await([this] { return server_.budget().waiters() == 1; });
  EXPECT_EQ(taken(), 0U);
  all.ShrinkTo(0);
  Taken(0)->Finish(absl::OkStatus());
  EXPECT_TRUE(call->Await().status.ok());
}

TEST_F(MessageCallTest, LeavesTheQueueForMemoryWhenItsClientDoes) {
  const Reservation all = TakeAllMemory();
  const auto call = Start({});
  Await([this] { return server_.budget().waiters() == 1; });
  call->Cancel();
  EXPECT_EQ(call->Await().status.error_code(), grpc::StatusCode::CANCELLED);
  Await([this] { return server_.budget().waiters() == 0; });
  EXPECT_EQ(taken(), 0U);
}

// A disk that never answers.
class SlowArchive : public NoArchive {
 public:
  void Load(const std::shared_ptr<KeptSession>& session) override {
    loading = session;
    is_loading = true;
  }
  std::shared_ptr<KeptSession> loading;
  std::atomic<bool> is_loading = false;
};

class CountingObserver : public NoObserver {
 public:
  void OnHandled(absl::string_view /*method*/, absl::StatusCode /*code*/,
                 absl::Duration /*elapsed*/) override {
    ++handled;
  }
  std::atomic<int> handled = 0;
};

TEST_F(MessageCallTest, LeavesTheDiskWhenItsClientDoes) {
  SlowArchive archive;
  CountingObserver observer;
  server_.Configure(
      [&](CallServices& services) { services.observer = &observer; });
  SessionTable* const table = server_.services().sessions;
  table->SetArchive(&archive);
  SessionTable::StoredSession stored;
  stored.settings.id = std::string(16, 's');
  stored.settings.open_id = std::string(16, 'p');
  stored.settings.durable = true;
  ASSERT_TRUE(table->AddStored(stored).ok());
  const auto call = Start({stored.settings.id, 1, 1, std::string(16, 'c'), 0});
  Await([&] { return archive.is_loading.load(); });
  call->Cancel();
  Await([&] { return observer.handled == 1; });
  EXPECT_EQ(call->Await().status.error_code(), grpc::StatusCode::CANCELLED);
  archive.loading->FailToRestore(absl::DataLossError("too late"));
  EXPECT_EQ(taken(), 0U);
  table->SetArchive(nullptr);
}

TEST_F(MessageCallTest, RefusesAClientThatSendsNoMessage) {
  OpenCall call(server_.channel());
  call.HalfClose();
  const grpc::Status status = call.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("no message"), std::string::npos);
  EXPECT_EQ(taken(), 0U);
}

TEST_F(MessageCallTest, GivesUpAClientThatSendsNothingForTooLong) {
  const int64_t used = server_.budget().used_bytes();
  OpenCall call(server_.channel());
  Await([&] { return server_.budget().used_bytes() > used; });
  std::thread expire([&] {
    Await([&] {
      server_.client_watch().Expire(absl::Now() + absl::Hours(2));
      return server_.budget().used_bytes() == used;
    });
  });
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  expire.join();
  EXPECT_EQ(taken(), 0U);
}

TEST_F(MessageCallTest, AChangeReadsItsMessageBeforeItsTurn) {
  const auto first = StartChange(1, "a");
  PuppetCall* const runs = Taken(0);
  const int64_t used = server_.budget().used_bytes();
  const auto second = StartChange(2, "b");
  // The message has memory before its turn.
  Await([&] { return server_.budget().used_bytes() > used; });
  EXPECT_EQ(taken(), 1U);
  runs->Finish(absl::OkStatus());
  Taken(1)->Finish(absl::OkStatus());
  EXPECT_TRUE(first->Await().status.ok());
  EXPECT_TRUE(second->Await().status.ok());
  EXPECT_EQ(session_->state()->number, 2);
}

TEST_F(MessageCallTest, AChangeEndsWithTheOneBeforeIt) {
  const auto first = StartChange(1, "a");
  PuppetCall* const runs = Taken(0);
  const int64_t used = server_.budget().used_bytes();
  const auto second = StartChange(2, "b");
  Await([&] { return server_.budget().used_bytes() > used; });
  runs->Finish(absl::InternalError("failed"));
  EXPECT_EQ(first->Await().status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(second->Await().status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(taken(), 1U);
  EXPECT_EQ(session_->state()->number, 0);
}

TEST_F(MessageCallTest, ARefusalLeavesTheQueueForMemory) {
  const auto first = StartChange(1, "a");
  PuppetCall* const runs = Taken(0);
  const Reservation rest = TakeAllMemory();
  // The bytes that the first call frees don't suffice for it.
  const auto second = StartChange(2, "b", std::string(size_t{1} << 20, '\0'));
  Await([this] { return server_.budget().waiters() == 1; });
  runs->Finish(absl::InternalError("failed"));
  EXPECT_EQ(second->Await().status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(server_.budget().waiters(), 0);
  first->Await();
}

TEST_F(MessageCallTest, ARepeatGetsTheReplyAndDoesNothing) {
  const auto first = StartChange(1, "a");
  PuppetCall* const runs = Taken(0);
  const auto meanwhile = StartChange(1, "a");
  runs->Finish(absl::OkStatus());
  const std::string response = first->Await().response;
  EXPECT_EQ(meanwhile->Await().response, response);
  EXPECT_EQ(StartChange(1, "a")->Await().response, response);
  EXPECT_EQ(taken(), 1U);
  EXPECT_EQ(session_->state()->number, 1);
}

}  // namespace
}  // namespace convgrad
