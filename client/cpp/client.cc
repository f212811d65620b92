#include "client/cpp/client.h"

#include <future>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/rpc_status.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "proto/codec.h"
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

std::string RandomRequestId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = device();
    id.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return id;
}

absl::Status CheckOperandBytes(const OperationCall& call) {
  for (Operand operand : kAllOperands) {
    const auto& tensor = call.operation.operand(operand);
    if (!tensor) continue;
    const size_t found = call.operands[static_cast<size_t>(operand)].size();
    const auto expected = static_cast<size_t>(ByteSize(*tensor).value_or(0));
    if (found == expected) continue;
    return InvalidField(Reason::kByteCountMismatch,
                        absl::StrCat("operands.", NameOf(operand)),
                        absl::StrCat(found, " bytes"),
                        absl::StrCat(expected, " bytes, ", ToString(*tensor)));
  }
  return absl::OkStatus();
}

absl::Status BadReply(absl::string_view field, absl::string_view found,
                      absl::string_view expected) {
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kMalformed, absl::StrCat("reply.", field),
                    std::string(found), std::string(expected)});
}

template <typename Request>
absl::StatusOr<grpc::ByteBuffer> EncodeRequest(
    const OperationCall& call, std::vector<grpc::Slice> payloads) {
  Request request;
  *request.mutable_operation() = EncodeOperation(call.operation);
  *request.mutable_options() =
      EncodeOptions({.backend = call.backend,
                     .deterministic = call.deterministic,
                     .request_id = RandomRequestId(),
                     .self_check = call.self_check,
                     .count_nonfinite = call.count_nonfinite});
  return JoinMessage(request, std::move(payloads));
}

absl::StatusOr<OperationResult> DecodeResultTensor(
    const v1::NamedTensor& named, const ResultRequest& wanted,
    std::vector<PayloadView>* payloads) {
  const std::string name(NameOf(wanted.which));
  if (DecodeResult(named.which()) != wanted.which) {
    return BadReply("results", v1::Result_Name(named.which()), name);
  }
  ASSIGN_OR_RETURN(
      const TensorDescriptor descriptor,
      DecodeTensor(named.tensor(), wanted.descriptor.groups, name));
  if (!(descriptor == wanted.descriptor)) {
    return BadReply(name, ToString(descriptor), ToString(wanted.descriptor));
  }
  const int64_t index = named.tensor().inline_().payload_index();
  const auto count = static_cast<int64_t>(payloads->size());
  if (!named.tensor().has_inline_() || index < 0 || index >= count) {
    return BadReply(name, "no payload", "its bytes inline");
  }
  PayloadView& payload = (*payloads)[index];
  const int64_t expected = ByteSize(descriptor).value_or(0);
  if (payload.size() != expected) {
    return BadReply(name, absl::StrCat(payload.size(), " bytes"),
                    absl::StrCat(expected));
  }
  OperationResult result{wanted.which, descriptor, {}};
  ASSIGN_OR_RETURN(result.data, AlignedBuffer::Allocate(expected));
  payload.MoveTo(result.data.data());
  return result;
}

template <typename Response>
absl::StatusOr<OperationReply> DecodeReply(const ConvOperation& operation,
                                           grpc::ByteBuffer* message) {
  OperationReply reply;
  reply.received_bytes = static_cast<int64_t>(message->Length());
  Response response;
  absl::StatusOr<std::vector<PayloadView>> payloads =
      SplitMessage(message, &response);
  if (!payloads.ok()) {
    return BadReply("message", payloads.status().message(), "a response");
  }
  const auto count = static_cast<int>(operation.results.size());
  if (response.results_size() != count) {
    return BadReply("results", absl::StrCat(response.results_size()),
                    absl::StrCat(count));
  }
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(OperationResult result,
                     DecodeResultTensor(response.results(i),
                                        operation.results[i], &*payloads));
    reply.results.push_back(std::move(result));
  }
  reply.report = std::move(*response.mutable_report());
  return reply;
}

}  // namespace

struct Client::Connection {
  explicit Connection(std::shared_ptr<grpc::Channel> channel)
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
      new Client(std::make_unique<Connection>(std::move(channel))));
}

Client::Client(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)) {}

Client::~Client() = default;

absl::StatusOr<OperationReply> Client::Run(const OperationCall& call) {
  const absl::Time start = absl::Now();
  const ConvOperation& operation = call.operation;
  RETURN_IF_ERROR(Validate(operation));
  RETURN_IF_ERROR(CheckOperandBytes(call));
  const bool forward = operation.direction == Direction::kForward;

  Loan loan;
  int64_t sent_bytes = 0;
  // A function of its own, so that every reference of ours to the operands'
  // memory is gone before the wait.
  auto send = [&]() -> absl::StatusOr<grpc::ByteBuffer> {
    std::vector<grpc::Slice> payloads;
    for (Operand operand : kAllOperands) {
      if (!operation.operand(operand)) continue;
      payloads.push_back(
          loan.SliceOf(call.operands[static_cast<size_t>(operand)]));
    }
    auto request =
        forward
            ? EncodeRequest<v1::ConvForwardRequest>(call, std::move(payloads))
            : EncodeRequest<v1::ConvBackwardRequest>(call, std::move(payloads));
    if (!request.ok()) return request.status();
    sent_bytes = static_cast<int64_t>(request->Length());
    return connection_->Call(forward ? kForwardMethod : kBackwardMethod,
                             *request, call.deadline);
  };
  absl::StatusOr<grpc::ByteBuffer> message = send();
  loan.AwaitReturn();
  if (!message.ok()) return message.status();
  auto reply =
      forward ? DecodeReply<v1::ConvForwardResponse>(operation, &*message)
              : DecodeReply<v1::ConvBackwardResponse>(operation, &*message);
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
