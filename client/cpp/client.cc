#include "client/cpp/client.h"

#include <future>
#include <utility>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/operation_message.h"
#include "client/cpp/rpc_status.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "proto/payload_message.h"

namespace convgrad {
namespace {

using RawStub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

constexpr char kForwardMethod[] = "/convgrad.v1.ConvGrad/ConvForward";
constexpr char kBackwardMethod[] = "/convgrad.v1.ConvGrad/ConvBackward";
constexpr char kRequestBytesKey[] = "convgrad-request-bytes";

// Memory lent to gRPC, and the wait for its return.
class Loan {
 public:
  Loan() {
    auto promise = std::make_shared<std::promise<void>>();
    returned_ = promise->get_future();
    owner_ = std::shared_ptr<const void>(
        this, [promise](const void*) { promise->set_value(); });
  }

  grpc::Slice SliceOf(absl::Span<const std::byte> bytes) const {
    return SliceOver(bytes.data(), static_cast<int64_t>(bytes.size()), owner_);
  }

  // Returns when the last slice is gone.
  void AwaitReturn() {
    owner_.reset();
    returned_.wait();
  }

 private:
  std::future<void> returned_;
  std::shared_ptr<const void> owner_;
};

}  // namespace

struct Client::Connection {
  explicit Connection(const std::shared_ptr<grpc::Channel>& channel)
      : raw_stub(channel), stub(v1::ConvGrad::NewStub(channel)) {}

  // Sends `request`, waits, and returns the reply's message.
  absl::StatusOr<grpc::ByteBuffer> Call(const std::string& method,
                                        const grpc::ByteBuffer& request,
                                        absl::Time deadline);

  RawStub raw_stub;
  std::unique_ptr<v1::ConvGrad::Stub> stub;
};

namespace {

void SetDeadline(absl::Time deadline, grpc::ClientContext* context) {
  if (deadline == absl::InfiniteFuture()) return;
  context->set_deadline(absl::ToChronoTime(deadline));
}

}  // namespace

absl::StatusOr<grpc::ByteBuffer> Client::Connection::Call(
    const std::string& method, const grpc::ByteBuffer& request,
    absl::Time deadline) {
  grpc::ClientContext context;
  SetDeadline(deadline, &context);
  context.AddMetadata(kRequestBytesKey, std::to_string(request.Length()));
  grpc::CompletionQueue queue;
  auto call = raw_stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, call.get());
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  RETURN_IF_ERROR(FromRpc(status, context));
  return reply;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(
    const ClientOptions& options) {
  if (options.server.empty()) {
    return InvalidField(Reason::kMissing, "server", "nothing",
                        "HOST:PORT or unix:PATH");
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // An http_proxy of the environment would also catch servers on loopback.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  auto channel = grpc::CreateCustomChannel(
      options.server, grpc::InsecureChannelCredentials(), arguments);
  return std::unique_ptr<Client>(
      new Client(std::make_unique<Connection>(channel)));
}

Client::Client(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)) {}

Client::~Client() = default;

absl::StatusOr<OperationReply> Client::Run(const OperationCall& call) {
  const absl::Time start = absl::Now();
  const ConvOperation& operation = call.operation;
  RETURN_IF_ERROR(Validate(operation));
  ASSIGN_OR_RETURN(const RegionPlaces places, PlacesOf(call));
  const bool forward = operation.direction == Direction::kForward;

  Loan loan;
  int64_t sent_bytes = 0;
  // A function of its own, so that every reference of ours to the operands'
  // memory is gone before the wait.
  auto send = [&]() -> absl::StatusOr<grpc::ByteBuffer> {
    std::vector<grpc::Slice> payloads;
    for (Operand operand : kAllOperands) {
      const auto place = static_cast<size_t>(operand);
      if (!operation.operand(operand) || places.operands[place]) continue;
      payloads.push_back(loan.SliceOf(call.operands[place]));
    }
    auto request = EncodeRequest(call, places, std::move(payloads));
    if (!request.ok()) return request.status();
    sent_bytes = static_cast<int64_t>(request->Length());
    return connection_->Call(forward ? kForwardMethod : kBackwardMethod,
                             *request, call.deadline);
  };
  absl::StatusOr<grpc::ByteBuffer> message = send();
  loan.AwaitReturn();
  if (!message.ok()) return message.status();
  auto reply = DecodeReply(call, places, &*message);
  if (!reply.ok()) return reply.status();
  reply->sent_bytes = sent_bytes;
  reply->elapsed = absl::Now() - start;
  return reply;
}

absl::StatusOr<v1::GetCapabilitiesResponse> Client::Capabilities(
    absl::Time deadline) {
  grpc::ClientContext context;
  SetDeadline(deadline, &context);
  v1::GetCapabilitiesResponse response;
  const grpc::Status status = connection_->stub->GetCapabilities(
      &context, v1::GetCapabilitiesRequest(), &response);
  RETURN_IF_ERROR(FromRpc(status, context));
  return response;
}

}  // namespace convgrad
