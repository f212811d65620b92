// Tests which thread copies and hashes the bytes of a put.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/mutex.h"
#include "convgrad/v1/session.pb.h"
#include "gtest/gtest.h"
#include "proto/codec/codec.h"
#include "proto/tensor_digest.h"
#include "server/rpc/tensors/put_stream_call.h"
#include "server/rpc/tensors/tensor_calls.h"
#include "tests/end_to_end/sessions/call_in_flight.h"
#include "tests/end_to_end/sessions/tensor_stream.h"
#include "tests/server/rpc/calls/call_server.h"

namespace convgrad {
namespace {

constexpr int64_t kBytes = int64_t{64} << 20;
const TensorDescriptor kLargeTensor{
    DataType::kF32, Layout::kNCX, {1, kBytes / 4}};
// The smallest tensor that a task copies.
const TensorDescriptor kSmallTensor{
    DataType::kF32, Layout::kNCX, {1, (64 << 10) / 4 + 1}};

// Tasks that a test runs on its own thread, at a time of its choice.
class HeldTasks {
 public:
  void Post(std::function<void()> task) {
    MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }
  // Waits for a task.
  void AwaitOne() {
    MutexLock lock(&mutex_);
    while (tasks_.empty()) changed_.Wait(&mutex_);
  }
  // Runs the tasks of a call until `is_over`.
  void RunUntil(const std::function<bool()>& is_over) {
    while (!is_over()) {
      std::vector<std::function<void()>> tasks;
      {
        MutexLock lock(&mutex_);
        tasks.swap(tasks_);
      }
      for (const auto& task : tasks) task();
      ran_ += tasks.size();
    }
  }
  size_t ran() const { return ran_; }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t ran_ = 0;
};

// A put that tells whether it has heard that its client left.
class WatchedPut final : public PutTensorsCall {
 public:
  using PutTensorsCall::PutTensorsCall;
  bool is_cancelled() const { return *cancelled(); }
};

class PutCallsTest : public ::testing::Test {
 protected:
  PutCallsTest() {
    server_.Configure([this](CallServices& services) {
      services.regions = &regions_;
      services.copy = [this](const std::string& /*client*/,
                             std::function<void()> task) {
        tasks_.Post(std::move(task));
      };
    });
  }
  ChangeMetadata Change(int64_t sequence, char call_id = 'c') const {
    return {session_->settings().id, session_->info().epoch, sequence,
            std::string(16, call_id), 0};
  }
  std::unique_ptr<CallInFlight> Start(const v1::PutTensorsRequest& request,
                                      const ChangeMetadata& change) {
    return std::make_unique<CallInFlight>(server_.channel(), "/put",
                                          request.SerializeAsString(), change);
  }
  int64_t number() const { return session_->state()->number; }
  const KeptTensor& Kept(const std::string& name) const {
    return session_->state()->tensors.find(name)->second;
  }
  void RunUntilCommitted() {
    tasks_.RunUntil([this] { return number() > 0; });
  }

  const Method unary_{
      "", "PutTensors", ClientRole::kTrain, SessionRule::kChanges, "put",
      0,  nullptr};
  const Method stream_{"",
                       "PutTensorsStream",
                       ClientRole::kTrain,
                       SessionRule::kChanges,
                       "put",
                       0,
                       nullptr};
  HeldTasks tasks_;
  std::atomic<WatchedPut*> put_{nullptr};
  CallServer server_{
      [this](const CallServices& services,
             grpc::GenericCallbackServerContext* context) -> Call* {
        if (context->method() == "/put") {
          put_ = new WatchedPut(unary_, services, context);
          return put_;
        }
        return new PutStreamCall(stream_, services, context);
      }};
  RegionRegistry regions_{&server_.budget(), kBytes};
  SessionUse session_ = server_.Open();
};

v1::PutTensorsRequest PutOf(const std::string& name,
                            const TensorDescriptor& tensor, char byte) {
  const std::string bytes(static_cast<size_t>(*ByteSize(tensor)), byte);
  v1::PutTensorsRequest request;
  request.add_payloads(bytes);
  v1::NamedPut* put = request.add_tensors();
  put->set_name(name);
  *put->mutable_tensor() = EncodeTensor(tensor, 0);
  put->set_digest(DigestOf(tensor, bytes));
  return request;
}

// The kept and hashed bytes are those that the test writes while the task
// waits, so no other thread has read them before.
TEST_F(PutCallsTest, GrpcsThreadNeitherCopiesNorHashes) {
  const auto region = regions_.Create(kBytes);
  ASSERT_TRUE(region.ok()) << region.status();
  v1::PutTensorsRequest request = PutOf("w", kLargeTensor, 'b');
  request.clear_payloads();
  *request.mutable_tensors(0)->mutable_tensor() =
      EncodeTensor(kLargeTensor, RegionRange{region->id, 0, kBytes});
  const auto call = Start(request, Change(1));
  tasks_.AwaitOne();
  std::byte* const data = regions_.Find(region->id)->data();
  std::fill_n(data, kBytes, std::byte{'b'});
  RunUntilCommitted();
  EXPECT_TRUE(call->Await().status.ok());
  EXPECT_EQ(*Kept("w").bytes->data(), std::byte{'b'});
  EXPECT_EQ(tasks_.ran(), 1U);
}

TEST_F(PutCallsTest, APayloadIsCopiedByTheTask) {
  const auto call = Start(PutOf("w", kLargeTensor, 'b'), Change(1));
  tasks_.AwaitOne();
  EXPECT_EQ(number(), 0);
  RunUntilCommitted();
  EXPECT_TRUE(call->Await().status.ok());
  EXPECT_EQ(Kept("w").bytes->size(), kBytes);
  EXPECT_EQ(Kept("w").bytes->data()[kBytes - 1], std::byte{'b'});
}

TEST_F(PutCallsTest, FewBytesNeedNoTask) {
  const TensorDescriptor few{DataType::kF32, Layout::kNCX, {1, (64 << 10) / 4}};
  const auto call = Start(PutOf("w", few, 'b'), Change(1));
  EXPECT_TRUE(call->Await().status.ok());
  EXPECT_EQ(*Kept("w").bytes->data(), std::byte{'b'});
  EXPECT_EQ(tasks_.ran(), 0U);
}

TEST_F(PutCallsTest, AWrongDigestIsFoundByTheTask) {
  v1::PutTensorsRequest request = PutOf("w", kSmallTensor, 'b');
  request.mutable_tensors(0)->set_digest(std::string(32, 'd'));
  const auto call = Start(request, Change(1));
  tasks_.AwaitOne();
  tasks_.RunUntil([this] { return session_->info().epoch == 2; });
  EXPECT_EQ(call->Await().trailers.field, "tensors[0].digest");
  EXPECT_EQ(number(), 0);
}

TEST_F(PutCallsTest, AClientThatLeavesBeforeTheTaskChangesNothing) {
  const int64_t used = server_.budget().used_bytes();
  const auto call = Start(PutOf("w", kSmallTensor, 'b'), Change(1));
  tasks_.AwaitOne();
  call->Cancel();
  EXPECT_EQ(call->Await().status.error_code(), grpc::StatusCode::CANCELLED);
  Await([this] { return put_.load()->is_cancelled(); });
  tasks_.RunUntil([this] { return session_->info().epoch == 2; });
  EXPECT_EQ(number(), 0);
  Await([&] { return server_.budget().used_bytes() == used; });
  // The number is free for the next change.
  const auto again = Start(PutOf("w", kSmallTensor, 'c'), Change(1, 'd'));
  RunUntilCommitted();
  EXPECT_TRUE(again->Await().status.ok());
  EXPECT_EQ(*Kept("w").bytes->data(), std::byte{'c'});
}

TEST_F(PutCallsTest, ARepeatWaitsForTheTaskAndIsPutOnce) {
  const v1::PutTensorsRequest request = PutOf("w", kSmallTensor, 'b');
  const auto call = Start(request, Change(1));
  tasks_.AwaitOne();
  const auto repeat = Start(request, Change(1));
  RunUntilCommitted();
  const auto reply = call->Await();
  EXPECT_TRUE(reply.status.ok());
  EXPECT_EQ(repeat->Await().response, reply.response);
  EXPECT_EQ(tasks_.ran(), 1U);
  EXPECT_EQ(number(), 1);
}

// One task for each frame, then one for the digest.
TEST_F(PutCallsTest, AStreamLeavesItsFramesToTasks) {
  const std::string bytes(static_cast<size_t>(*ByteSize(kSmallTensor)), 'b');
  std::vector<v1::PutTensorsStreamRequest> messages(1);
  v1::NamedPut* put = messages[0].mutable_header()->add_tensors();
  put->set_name("w");
  *put->mutable_tensor() = EncodeDescriptor(kSmallTensor);
  put->mutable_tensor()->mutable_stream();
  put->set_digest(DigestOf(kSmallTensor, bytes));
  messages.push_back(FrameOf(0, 0, bytes));
  SessionReply<v1::PutTensorsResponse> reply;
  std::thread client([&] {
    const auto stub = v1::ConvGradSessions::NewStub(server_.channel());
    grpc::ClientContext context;
    AddTo(&context, Change(1));
    const auto writer = stub->PutTensorsStream(&context, &reply.response);
    for (const auto& message : messages) writer->Write(message);
    writer->WritesDone();
    reply.status = writer->Finish();
  });
  tasks_.AwaitOne();
  RunUntilCommitted();
  client.join();
  EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_EQ(tasks_.ran(), 2U);
  EXPECT_EQ(*Kept("w").bytes->data(), std::byte{'b'});
}

}  // namespace
}  // namespace convgrad
