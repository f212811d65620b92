// Tests changes of one session that are in flight together: when the server
// reads each message, and the outcome of each change.
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/memory/admission.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/call_in_flight.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

constexpr int64_t kElements = 1 << 18;
// The bytes of the budget that a session takes.
constexpr int64_t kSessionBytes = 4096;

v1::PutTensorsRequest PutOfBytes(const std::string& name) {
  return SessionClient::PutOf(name, TensorOf(v1::LAYOUT_NCX, {1, kElements}),
                              std::string(4 * kElements, name[0]));
}

// A put that has started but whose message isn't sent yet.
class SlowPut {
 public:
  SlowPut(const std::shared_ptr<grpc::Channel>& channel,
          const v1::PutTensorsRequest& request, const ChangeMetadata& change)
      : stub_(channel), bytes_(request.SerializeAsString()) {
    AddTo(&context_, change);
    context_.AddMetadata(kRequestBytesKey, std::to_string(bytes_.size()));
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Minutes(1)));
    call_ = stub_.PrepareCall(&context_, PathOf(request), &queue_);
    call_->StartCall(this);
    EXPECT_TRUE(IsDone());
  }

  // Sends the message. Returns when the server has read most of it; false if
  // the call has ended.
  bool Send() {
    const grpc::Slice slice(bytes_);
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), this);
    return IsDone();
  }
  void Cancel() { context_.TryCancel(); }

  // Blocks until the call ends; call it once.
  SessionReply<std::string> Await() {
    SessionReply<std::string> reply;
    grpc::ByteBuffer response;
    call_->Read(&response, this);
    IsDone();
    call_->Finish(&reply.status, this);
    IsDone();
    reply.trailers = TrailersOf(context_);
    reply.number = NumberOf(context_);
    return reply;
  }

 private:
  bool IsDone() {
    void* tag;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }

  grpc::GenericStub stub_;
  const std::string bytes_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

Config PatientConfig() {
  Config config = TestConfig();
  // No call ends because of a slow client.
  config.unary_idle_timeout = absl::Hours(1);
  config.max_kept_bytes = (int64_t{7} << 20) / 2;
  return config;
}

class SessionPipeline : public ::testing::Test {
 protected:
  // Returns the change that is `ahead` numbers after the next one.
  ChangeMetadata Change(int64_t ahead) {
    ChangeMetadata change = client_.Next();
    change.sequence += ahead;
    return change;
  }
  std::unique_ptr<SlowPut> Start(const std::string& name, int64_t ahead) {
    return std::make_unique<SlowPut>(server_.channel(), PutOfBytes(name),
                                     Change(ahead));
  }

  // Waits until `puts` calls have the memory for their message. Requires:
  // nothing is kept.
  void AwaitMemoryOf(int64_t puts) {
    const int64_t bytes =
        kSessionBytes + puts * AdmissionBytes(static_cast<int64_t>(
                                   PutOfBytes("a").ByteSizeLong()));
    while (UsedBytes() != bytes) absl::SleepFor(absl::Milliseconds(1));
  }
  int64_t UsedBytes() {
    const std::string name = "\nconvgrad_memory_used_bytes ";
    const std::string text = server_.server().MetricsText();
    return std::stoll(text.substr(text.find(name) + name.size()));
  }

  TestServer server_{PatientConfig()};
  SessionClient client_{server_.channel()};
};

TEST_F(SessionPipeline, ReadsAMessageWhileTheChangeBeforeRuns) {
  const auto first = Start("a", 0);
  const auto second = Start("b", 1);
  EXPECT_TRUE(second->Send());
  EXPECT_TRUE(first->Send());
  EXPECT_EQ(first->Await().number, 1);
  EXPECT_EQ(second->Await().number, 2);
  EXPECT_EQ(client_.List().response.tensors_size(), 2);
}

TEST_F(SessionPipeline, AFailureEndsAChangeWhoseMessageIsOnItsWay) {
  const auto first = Start("a", 0);
  const auto second = Start("b", 1);
  const auto third = Start("c", 2);
  AwaitMemoryOf(2);
  first->Cancel();
  EXPECT_EQ(second->Await().trailers.reason, "EPOCH_ENDED");
  EXPECT_EQ(third->Await().trailers.reason, "EPOCH_ENDED");
  EXPECT_EQ(first->Await().status.error_code(), grpc::CANCELLED);
  AwaitMemoryOf(0);
}

TEST_F(SessionPipeline, WhoWaitsWithItsMessageMayBeCancelled) {
  const auto first = Start("a", 0);
  auto second = Start("b", 1);
  EXPECT_TRUE(second->Send());
  second->Cancel();
  EXPECT_EQ(second->Await().status.error_code(), grpc::CANCELLED);
  // The call's memory and its number are free again.
  AwaitMemoryOf(1);
  second = Start("c", 1);
  EXPECT_TRUE(second->Send());
  EXPECT_TRUE(first->Send());
  EXPECT_TRUE(first->Await().status.ok());
  EXPECT_EQ(second->Await().number, 2);
  EXPECT_EQ(client_.Get("b").status.error_code(), grpc::NOT_FOUND);
  EXPECT_TRUE(client_.Get("c").status.ok());
}

TEST_F(SessionPipeline, ABusyChangeKeepsItsNumber) {
  // The third tensor fills the memory, so there is no room for a fourth.
  SessionClient other(server_.channel());
  ASSERT_TRUE(other.Put(PutOfBytes("o")).status.ok());
  ASSERT_TRUE(client_.Put(PutOfBytes("a")).status.ok());
  ASSERT_TRUE(client_.Put(PutOfBytes("b")).status.ok());
  const ChangeMetadata change = Change(0);
  const auto next = StartChange(server_.channel(), PutOfBytes("d"), Change(1),
                                absl::Minutes(1));
  const auto put = [&] {
    return StartChange(server_.channel(), PutOfBytes("c"), change)->Await();
  };
  const SessionReply<std::string> busy = put();
  EXPECT_EQ(busy.trailers.reason, "BUSY") << busy.status.error_message();
  EXPECT_NE(busy.trailers.pushback_ms, "");
  // BUSY decides nothing about the change, so it may come again.
  EXPECT_EQ(busy.number, -1);
  ASSERT_TRUE(other.Drop("o").status.ok());
  EXPECT_EQ(put().number, change.sequence);
  const SessionReply<std::string> also_busy = next->Await();
  EXPECT_EQ(also_busy.trailers.reason, "BUSY");
  EXPECT_EQ(also_busy.number, -1);
}

}  // namespace
}  // namespace convgrad
