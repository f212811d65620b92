#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "convgrad/v1/service.pb.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "proto/message_parts.h"

namespace convgrad {
namespace {

constexpr size_t kQuotaBytes = 2'000'000;
constexpr size_t kPayloadBytes = 1'000'000;

TEST(PayloadView, KeepsItsSlicesUntilTheyAreReleased) {
  const auto freed = std::make_shared<std::atomic<int>>(0);
  const auto slice = [&freed](absl::string_view text) {
    return SliceOver(text.data(), std::ssize(text),
                     std::shared_ptr<const void>(
                         text.data(), [freed](const void*) { ++*freed; }));
  };
  PayloadView received({slice("one"), slice("two"), slice("three")});
  received.Release(6);
  received.Release(3);
  EXPECT_EQ(*freed, 2);
  PayloadView moved(std::move(received));
  EXPECT_EQ(moved.size(), 11);
  EXPECT_EQ(*freed, 2);
  moved = PayloadView();
  EXPECT_EQ(*freed, 3);
  EXPECT_EQ(moved.size(), 0);
}

// How a thread of gRPC's callbacks finishes with a message.
enum class Use { kDrop, kMove, kRelease };

void UseUp(Use use, grpc::ByteBuffer* message) {
  v1::ConvBackwardRequest head;
  std::vector<PayloadView> payloads = *SplitMessage(message, &head);
  // Other calls want memory meanwhile.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (use == Use::kMove) {
    std::string copy(payloads[0].size(), '\0');
    payloads[0].MoveTo(copy.data());
  }
  if (use == Use::kRelease) {
    for (size_t at = 0; at < kPayloadBytes; at += kPayloadBytes / 10) {
      payloads[0].Release(static_cast<int64_t>(at));
    }
  }
}

class Reader final : public grpc::ServerGenericBidiReactor {
 public:
  Reader(Use use, std::atomic<int>* messages) : use_(use), messages_(messages) {
    StartRead(&message_);
  }
  void OnReadDone(bool ok) override {
    if (ok) {
      UseUp(use_, &message_);
      ++*messages_;
    }
    Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  const Use use_;
  std::atomic<int>* const messages_;
  grpc::ByteBuffer message_;
};

class ScarceServer final : public grpc::CallbackGenericService {
 public:
  explicit ScarceServer(Use use) : use_(use) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota("scarce");
    quota.Resize(kQuotaBytes);
    builder.SetResourceQuota(quota);
    builder.RegisterCallbackGenericService(this);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    server_ = builder.BuildAndStart();
  }
  ~ScarceServer() override { server_->Shutdown(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int messages() const { return messages_; }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Reader(use_, &messages_);
  }

  const Use use_;
  std::atomic<int> messages_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Sends one message on its own connection. gRPC may refuse or cancel it.
void SendMessage(const std::string& address, int client) {
  const std::string payload(kPayloadBytes, 'x');
  grpc::ByteBuffer message =
      *JoinMessage(v1::ConvBackwardRequest(), {grpc::Slice(payload)});
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt("convgrad.client", client);
  grpc::GenericStub stub(grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(3));
  grpc::CompletionQueue queue;
  const auto call =
      stub.PrepareUnaryCall(&context, "/test/Read", message, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
}

class ScarceMemoryTest : public testing::TestWithParam<Use> {};

// Eight clients want four times the quota, so gRPC reclaims memory all the
// time.
TEST_P(ScarceMemoryTest, MessagesAreLetGoOf) {
  constexpr int kClients = 8;
  constexpr int kMessages = 50;
  const ScarceServer server(GetParam());
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&server, i] {
      while (server.messages() < kMessages) SendMessage(server.address(), i);
    });
  }
  for (std::thread& client : clients) client.join();
}

INSTANTIATE_TEST_SUITE_P(Uses, ScarceMemoryTest,
                         testing::Values(Use::kDrop, Use::kMove,
                                         Use::kRelease));

}  // namespace
}  // namespace convgrad
