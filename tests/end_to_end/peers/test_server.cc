#include "tests/end_to_end/peers/test_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "convgrad/v1/error.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

std::unique_ptr<Server> MustStart(const Config& config,
                                  std::vector<RegisteredBackend> backends) {
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(config, std::move(backends));
  if (!server.ok()) {
    ADD_FAILURE() << server.status();
    std::abort();
  }
  return *std::move(server);
}

std::string TextOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

grpc::ByteBuffer BufferOf(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

v1::Tensor TensorMessage(const std::vector<int64_t>& dims, v1::Layout layout,
                         int payload_index) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_F32);
  tensor.set_layout(layout);
  for (int64_t dim : dims) tensor.add_dims(dim);
  tensor.mutable_inline_()->set_payload_index(payload_index);
  return tensor;
}

v1::ConvProblem SeedProblem() {
  v1::ConvProblem problem;
  for (int64_t dim : {1, 1, 3, 3}) problem.add_input_dims(dim);
  problem.set_out_channels(1);
  problem.add_kernel(2);
  return problem;
}

// Selects the backends that tests/gpu/run tests.
Config WithTestedBackends(Config config) {
  const char* const names = std::getenv("CONVGRAD_TEST_BACKENDS");
  if (names != nullptr) config.backends = names;
  return config;
}

}  // namespace

Config TestConfig() {
  Config config;
  config.listen = "127.0.0.1:0";
  config.metrics_listen = "";
  config.threads_per_worker = 1;
  config.pin_workers = false;
  config.prove_at_start = false;
  config.memory_budget_bytes = int64_t{128} << 20;
  config.drain_timeout = absl::Seconds(20);
  return config;
}

TestServer::TestServer(const Config& config)
    : TestServer(WithTestedBackends(config), MakeBackends()) {}

TestServer::TestServer(const Config& config,
                       std::vector<RegisteredBackend> backends)
    : server_(MustStart(config, std::move(backends))),
      channel_(NewChannel()),
      stub_(v1::ConvGrad::NewStub(channel_)) {}

std::shared_ptr<grpc::Channel> TestServer::NewChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(
      address(), grpc::InsecureChannelCredentials(), arguments);
}

void TestServer::ExpectNothingHeld() {
  const absl::Time limit = absl::Now() + absl::Minutes(2);
  Readings gauges = server_->gauges();
  while ((gauges.SumOf("convgrad_memory_used_bytes") > 0 ||
          gauges.SumOf("convgrad_buffers") > 0) &&
         absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(1));
    gauges = server_->gauges();
  }
  EXPECT_EQ(gauges.SumOf("convgrad_memory_used_bytes"), 0);
  EXPECT_EQ(gauges.SumOf("convgrad_buffers"), 0);
  EXPECT_EQ(gauges.SumOf("convgrad_queue_depth"), 0);
  EXPECT_EQ(gauges.SumOf("convgrad_admission_waiters"), 0);
}

void TestServer::AwaitMetric(const std::string& line) {
  const absl::Time limit = absl::Now() + absl::Minutes(2);
  std::string text;
  do {
    text = absl::StrCat("\n", server_->MetricsText());
    if (absl::StrContains(text, absl::StrCat("\n", line, "\n"))) return;
    absl::SleepFor(absl::Milliseconds(1));
  } while (absl::Now() < limit);
  ADD_FAILURE() << "no line '" << line << "' in\n" << text;
}

Trailers TrailersOf(const grpc::ClientContext& context) {
  Trailers trailers;
  for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
    const std::string text(value.data(), value.size());
    if (key == "grpc-retry-pushback-ms") trailers.pushback_ms = text;
    if (key != "convgrad-error-bin") continue;
    v1::ErrorDetail detail;
    EXPECT_TRUE(detail.ParseFromString(text));
    trailers.reason = detail.reason();
    trailers.field = detail.field();
    trailers.found = detail.found();
    trailers.expected = detail.expected();
  }
  return trailers;
}

RawReply CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                 const std::string& method, const std::string& message,
                 const std::map<std::string, std::string>& metadata) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  grpc::CompletionQueue queue;
  const std::string path = absl::StartsWith(method, "/")
                               ? method
                               : "/convgrad.v1.ConvGrad/" + method;
  const auto call =
      stub.PrepareUnaryCall(&context, path, BufferOf(message), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  RawReply reply;
  call->Finish(&response, &reply.status, &queue);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  reply.response = TextOf(response);
  reply.trailers = TrailersOf(context);
  return reply;
}

std::string CallStream(const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& method, const std::string& message) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  if (!next()) return "";
  call->Write(BufferOf(message), nullptr);
  if (!next()) return "";
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  const bool read = next();
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  return read ? TextOf(response) : "";
}

std::string HttpGet(int port, const std::string& path) {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
      0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n");
    if (write(file, request.data(), request.size()) > 0) {
      char buffer[4096];
      ssize_t size;
      while ((size = read(file, buffer, sizeof(buffer))) > 0) {
        answer.append(buffer, size);
      }
    }
  }
  close(file);
  return answer;
}

std::string BytesOf(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (values.empty()) return values;
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

v1::ConvBackwardRequest SeedBackward() {
  v1::ConvBackwardRequest request;
  v1::ConvOperation* operation = request.mutable_operation();
  *operation->mutable_problem() = SeedProblem();
  v1::Operands* operands = operation->mutable_operands();
  *operands->mutable_input() = TensorMessage({1, 1, 3, 3}, v1::LAYOUT_NCX, 0);
  *operands->mutable_weight() = TensorMessage({1, 1, 2, 2}, v1::LAYOUT_OIX, 1);
  *operands->mutable_grad_output() =
      TensorMessage({1, 1, 2, 2}, v1::LAYOUT_NCX, 2);
  operation->add_results()->set_which(v1::RESULT_GRAD_INPUT);
  operation->add_results()->set_which(v1::RESULT_GRAD_WEIGHT);
  request.add_payloads(BytesOf({0, 1, 2, 3, 4, 5, 6, 7, 8}));
  request.add_payloads(BytesOf({0, 1, 2, 3}));
  request.add_payloads(BytesOf({1, 1, 1, 1}));
  return request;
}

v1::ConvForwardRequest SeedForward() {
  v1::ConvForwardRequest request;
  v1::ConvOperation* operation = request.mutable_operation();
  *operation->mutable_problem() = SeedProblem();
  v1::Operands* operands = operation->mutable_operands();
  *operands->mutable_input() = TensorMessage({1, 1, 3, 3}, v1::LAYOUT_NCX, 0);
  *operands->mutable_weight() = TensorMessage({1, 1, 2, 2}, v1::LAYOUT_OIX, 1);
  operation->add_results()->set_which(v1::RESULT_OUTPUT);
  request.add_payloads(BytesOf({0, 1, 2, 3, 4, 5, 6, 7, 8}));
  request.add_payloads(BytesOf({1, 1, 1, 1}));
  return request;
}

v1::ConvBackwardRequest SeedBackwardOf(int64_t batch) {
  v1::ConvBackwardRequest request = SeedBackward();
  v1::ConvOperation* operation = request.mutable_operation();
  operation->mutable_problem()->set_input_dims(0, batch);
  operation->mutable_operands()->mutable_input()->set_dims(0, batch);
  operation->mutable_operands()->mutable_grad_output()->set_dims(0, batch);
  request.set_payloads(0, std::string(batch * 36, '\0'));
  request.set_payloads(2, std::string(batch * 16, '\0'));
  return request;
}

}  // namespace convgrad
