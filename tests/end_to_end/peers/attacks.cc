#include "tests/end_to_end/peers/attacks.h"

#include <list>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "convgrad/v1/service.pb.h"
#include "tests/end_to_end/peers/raw_http2.h"
#include "tests/end_to_end/peers/raw_stream.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

constexpr char kAttacker[] = "127.0.0.2";
constexpr uint32_t kUsualWindow = 65535;
constexpr char kBackward[] = "/convgrad.v1.ConvGrad/ConvBackward";
constexpr uint32_t kLargeBytes = 30 << 20;

void AwaitStop(const std::atomic<bool>& stop) {
  while (!stop) absl::SleepFor(absl::Milliseconds(10));
}

RawHttp2& Connect(const std::string& address, std::list<RawHttp2>* connections,
                  uint32_t window = kUsualWindow) {
  return connections->emplace_back(address, window, kAttacker);
}

// Returns a request of 24 KB with an answer of 30 MiB.
std::string SmallRequestForMuch() {
  constexpr int64_t kSide = 64;
  constexpr int64_t kChannels = kLargeBytes / (kSide * kSide * sizeof(float));
  v1::ConvForwardRequest request = SeedForward();
  v1::ConvOperation* operation = request.mutable_operation();
  v1::ConvProblem* problem = operation->mutable_problem();
  v1::Operands* operands = operation->mutable_operands();
  problem->set_out_channels(kChannels);
  operands->mutable_weight()->set_dims(0, kChannels);
  for (int axis : {2, 3}) {
    problem->set_input_dims(axis, kSide);
    problem->set_kernel(0, 1);
    operands->mutable_input()->set_dims(axis, kSide);
    operands->mutable_weight()->set_dims(axis, 1);
  }
  request.set_payloads(0, std::string(kSide * kSide * sizeof(float), '\0'));
  request.set_payloads(1, std::string(kChannels * sizeof(float), '\0'));
  return request.SerializeAsString();
}

// Returns a stream's header with slices of 4 MiB each way.
std::string HeaderOfLargeSlices() {
  constexpr int64_t kItems = int64_t{1} << 14;
  v1::ConvStreamRequest message = TestHeader();
  v1::ConvOperation* operation = message.mutable_header()->mutable_operation();
  operation->mutable_problem()->set_input_dims(0, 6 * kItems);
  operation->mutable_operands()->mutable_input()->set_dims(0, 6 * kItems);
  operation->mutable_operands()->mutable_grad_output()->set_dims(0, 6 * kItems);
  message.mutable_header()->set_slice_items(kItems);
  return message.SerializeAsString();
}

}  // namespace

void HoldConnections(const std::string& address,
                     const std::atomic<bool>& stop) {
  constexpr int kConnections = 1000;
  std::list<RawHttp2> connections;
  while (std::ssize(connections) < kConnections && !stop) {
    Connect(address, &connections);
  }
  AwaitStop(stop);
}

void FloodWithHeaders(const std::string& address,
                      const std::atomic<bool>& stop) {
  constexpr int kCalls = 1000;
  while (!stop) {
    RawHttp2 client(address, kUsualWindow, kAttacker);
    client.AwaitSettings();
    client.AcknowledgeSettings();
    for (int i = 0; i < kCalls; ++i) {
      client.Open("/grpc.health.v1.Health/Watch");
    }
    client.AwaitEnd();
  }
}

void SendHalves(const std::string& address, const std::atomic<bool>& stop) {
  constexpr int kCalls = 24;
  RawHttp2 client(address, kUsualWindow, kAttacker);
  for (int i = 0; i < kCalls; ++i) {
    const uint32_t stream = client.Open(
        kBackward, {{"convgrad-request-bytes", absl::StrCat(kLargeBytes)}});
    client.BeginMessage(stream, kLargeBytes);
    client.Send(stream, std::string(2048, '\0'));
  }
  AwaitStop(stop);
}

void PromiseMessages(const std::string& address,
                     const std::atomic<bool>& stop) {
  constexpr int kCalls = 8;
  RawHttp2 client(address, kUsualWindow, kAttacker);
  for (int i = 0; i < kCalls; ++i) {
    client.Open(kBackward, {{"grpc-timeout", "86400S"}});
  }
  AwaitStop(stop);
}

void Trickle(const std::string& address, const std::atomic<bool>& stop) {
  constexpr int kStreams = 8;
  RawHttp2 client(address, kUsualWindow, kAttacker);
  std::list<uint32_t> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(client.Open(absl::StrCat(kBackward, "Stream")));
    client.SendMessage(streams.back(), HeaderOfLargeSlices());
  }
  for (int64_t at = 0; !stop; at += 4) {
    const std::string frame =
        TestFrame(v1::OPERAND_WEIGHT, at, 4).SerializeAsString();
    for (uint32_t stream : streams) client.SendMessage(stream, frame);
    absl::SleepFor(absl::Seconds(1));
  }
}

void LeaveAnswers(const std::string& address, const std::atomic<bool>& stop) {
  constexpr int kCalls = 16;
  const std::string request = SmallRequestForMuch();
  std::list<RawHttp2> connections;
  for (int i = 0; i < kCalls; ++i) {
    RawHttp2& client = Connect(address, &connections, 0);
    const uint32_t stream = client.Open("/convgrad.v1.ConvGrad/ConvForward");
    client.SendMessage(stream, request);
    client.Finish(stream);
  }
  AwaitStop(stop);
}

void SendAndLeave(const std::string& address, const std::atomic<bool>& stop) {
  const std::string request = SeedBackward().SerializeAsString();
  while (!stop) {
    RawHttp2 client(address, kUsualWindow, kAttacker);
    const uint32_t stream = client.Open(kBackward);
    client.SendMessage(stream, request);
    client.Finish(stream);
    client.EndSending();
    client.AwaitEnd();
    absl::SleepFor(absl::Milliseconds(5));
  }
}

}  // namespace convgrad
