#include "client/cpp/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/call_parts.h"
#include "client/cpp/change_sender.h"
#include "client/cpp/connection.h"
#include "client/cpp/credentials.h"
#include "client/cpp/loan.h"
#include "client/cpp/operation_message.h"
#include "client/cpp/rpc_status.h"
#include "proto/codec.h"
#include "proto/payload_message.h"

namespace convgrad {
namespace {

constexpr char kService[] = "/convgrad.v1.ConvGradSessions/";

template <typename Response>
absl::StatusOr<std::vector<PayloadView>> Split(grpc::ByteBuffer* message,
                                               Response* response) {
  absl::StatusOr<std::vector<PayloadView>> payloads =
      SplitMessage(message, response);
  if (payloads.ok()) return payloads;
  return BadReply("message", payloads.status().message(), "a response");
}

absl::Status CheckBytes(const TensorToPut& tensor) {
  const int64_t expected = ByteSize(tensor.descriptor).value_or(-1);
  if (std::ssize(tensor.bytes) == expected) return absl::OkStatus();
  return InvalidField(
      Reason::kByteCountMismatch, absl::StrCat("'", tensor.name, "'"),
      absl::StrCat(tensor.bytes.size(), " bytes"),
      absl::StrCat(expected, " bytes, ", ToString(tensor.descriptor)));
}

bool KeepsResults(const OperationCall& call) {
  return std::any_of(call.kept_results.begin(), call.kept_results.end(),
                     [](const auto& kept) { return kept.has_value(); });
}

}  // namespace

// The connection, and how often a call is tried.
class Session::Wire {
 public:
  // Errors: kInvalidArgument naming an option.
  static absl::StatusOr<std::unique_ptr<Wire>> Make(ClientOptions options) {
    if (ServersOf(options).size() != 1) {
      return InvalidField(Reason::kOutOfRange, "server",
                          absl::StrCat("'", options.server, "'"),
                          "one server, which keeps the session");
    }
    options.connections = 1;
    // The server that keeps the session, and not its replicas.
    ASSIGN_OR_RETURN(auto pool,
                     Client::ConnectionPool::Make(
                         options, Client::ConnectionPool::Addresses::kOne));
    return std::unique_ptr<Wire>(
        new Wire(std::move(pool), options.retries.value_or(RetryPolicy())));
  }

  const RetryPolicy& retries() const { return retries_; }

  // Returns what sends `request` to `method`, in any context.
  ChangeSender::Send Sender(const std::string& method,
                            const grpc::ByteBuffer& request,
                            absl::Time deadline) {
    return [this, method, &request, deadline](grpc::ClientContext* context) {
      return pool_->Run([&](Client::Connection& connection) {
        connection.Prepare(deadline, context);
        return connection.Send(method, request, context);
      });
    };
  }
  ChangeSender::Send Sender(const OperationCall& call,
                            const grpc::ByteBuffer& request) {
    return [this, &call, &request](grpc::ClientContext* context) {
      return pool_->Run([&](Client::Connection& connection) {
        connection.Prepare(call, context);
        return connection.Send(MethodOf(call.operation), request, context);
      });
    };
  }

  // Makes a call that may be repeated.
  template <typename Request, typename Response>
  absl::Status Call(const std::string& method, const Request& request,
                    Response* response) {
    ASSIGN_OR_RETURN(const grpc::ByteBuffer message, JoinMessage(request, {}));
    const auto send =
        Sender(absl::StrCat(kService, method), message, absl::InfiniteFuture());
    for (int attempts = 1;; ++attempts) {
      grpc::ClientContext context;
      absl::StatusOr<grpc::ByteBuffer> reply = send(&context);
      if (reply.ok()) return Split(&*reply, response).status();
      const auto delay = retries_.DelayAfter(reply.status(), attempts);
      if (!delay) return reply.status();
      absl::SleepFor(*delay);
    }
  }

 private:
  Wire(std::unique_ptr<Client::ConnectionPool> pool, const RetryPolicy& retries)
      : pool_(std::move(pool)), retries_(retries) {}

  const std::unique_ptr<Client::ConnectionPool> pool_;
  const RetryPolicy retries_;
};

Session::Session(std::unique_ptr<Wire> wire, const v1::SessionResponse& opened)
    : wire_(std::move(wire)),
      changes_(std::make_unique<ChangeSender>(opened.session_id(),
                                              opened.epoch(), opened.number(),
                                              wire_->retries())) {}

Session::~Session() = default;

absl::StatusOr<std::unique_ptr<Session>> Session::Open(
    const ClientOptions& client, const SessionOptions& options) {
  ASSIGN_OR_RETURN(auto wire, Wire::Make(client));
  v1::OpenSessionRequest request;
  request.set_open_id(RandomRequestId());
  request.set_name(options.name);
  request.set_lease_seconds(absl::ToDoubleSeconds(options.lease));
  request.set_quota_bytes(options.quota_bytes);
  request.mutable_readers()->Assign(options.readers.begin(),
                                    options.readers.end());
  v1::SessionResponse opened;
  RETURN_IF_ERROR(wire->Call("OpenSession", request, &opened));
  return std::unique_ptr<Session>(new Session(std::move(wire), opened));
}

absl::StatusOr<std::unique_ptr<Session>> Session::Resume(
    const ClientOptions& client, const std::string& id,
    const std::string& name) {
  ASSIGN_OR_RETURN(auto wire, Wire::Make(client));
  v1::ResumeSessionRequest request;
  request.set_session_id(id);
  request.set_name(name);
  v1::SessionResponse resumed;
  RETURN_IF_ERROR(wire->Call("ResumeSession", request, &resumed));
  return std::unique_ptr<Session>(new Session(std::move(wire), resumed));
}

const std::string& Session::id() const { return changes_->id(); }

int64_t Session::number() const { return changes_->number(); }

absl::Status Session::Renew() {
  v1::RenewSessionRequest request;
  request.set_session_id(id());
  v1::SessionResponse response;
  return wire_->Call("RenewSession", request, &response);
}

absl::Status Session::Close() {
  v1::CloseSessionRequest request;
  request.set_session_id(id());
  v1::CloseSessionResponse response;
  return wire_->Call("CloseSession", request, &response);
}

absl::StatusOr<int64_t> Session::Put(absl::Span<const TensorToPut> tensors,
                                     absl::Time deadline) {
  Loan loan;
  const auto put = [&]() -> absl::StatusOr<grpc::ByteBuffer> {
    v1::PutTensorsRequest request;
    std::vector<grpc::Slice> payloads;
    for (const TensorToPut& tensor : tensors) {
      RETURN_IF_ERROR(CheckBytes(tensor));
      v1::NamedPut* named = request.add_tensors();
      named->set_name(tensor.name);
      *named->mutable_tensor() =
          EncodeTensor(tensor.descriptor, static_cast<int>(payloads.size()));
      named->set_groups(tensor.descriptor.groups);
      payloads.push_back(loan.SliceOf(tensor.bytes));
    }
    ASSIGN_OR_RETURN(const grpc::ByteBuffer message,
                     JoinMessage(request, std::move(payloads)));
    return changes_->Change(
        deadline,
        wire_->Sender(absl::StrCat(kService, "PutTensors"), message, deadline));
  };
  absl::StatusOr<grpc::ByteBuffer> reply = put();
  loan.AwaitReturn();
  RETURN_IF_ERROR(reply.status());
  v1::PutTensorsResponse response;
  RETURN_IF_ERROR(Split(&*reply, &response).status());
  return response.version();
}

absl::StatusOr<int64_t> Session::Put(const std::string& name,
                                     const TensorDescriptor& descriptor,
                                     absl::Span<const std::byte> bytes) {
  return Put({{name, descriptor, bytes}});
}

absl::StatusOr<FetchedTensor> Session::Get(const std::string& name,
                                           absl::Time deadline) {
  v1::NamedGet wanted;
  wanted.set_name(name);
  return Fetch(wanted, deadline);
}

absl::StatusOr<FetchedTensor> Session::GetAs(const std::string& name,
                                             DataType dtype, Layout layout,
                                             absl::Time deadline) {
  v1::NamedGet wanted;
  wanted.set_name(name);
  wanted.set_dtype(EncodeDataType(dtype));
  wanted.set_layout(EncodeLayout(layout));
  return Fetch(wanted, deadline);
}

absl::StatusOr<FetchedTensor> Session::Fetch(const v1::NamedGet& wanted,
                                             absl::Time deadline) {
  v1::GetTensorsRequest request;
  *request.add_tensors() = wanted;
  ASSIGN_OR_RETURN(const grpc::ByteBuffer message, JoinMessage(request, {}));
  ASSIGN_OR_RETURN(
      grpc::ByteBuffer reply,
      changes_->Read(
          deadline, wire_->Sender(absl::StrCat(kService, "GetTensors"), message,
                                  deadline)));
  v1::GetTensorsResponse response;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(&reply, &response));
  if (response.tensors_size() != 1 || payloads.size() != 1) {
    return BadReply("tensors",
                    absl::StrCat(response.tensors_size(), " tensors, ",
                                 payloads.size(), " payloads"),
                    "1 of each");
  }
  FetchedTensor fetched;
  fetched.version = response.tensors(0).version();
  ASSIGN_OR_RETURN(
      fetched.descriptor,
      DecodeTensor(response.tensors(0).tensor(),
                   std::max<int64_t>(1, wanted.groups()), "reply.tensors[0]"));
  const int64_t expected = ByteSize(fetched.descriptor).value_or(-1);
  if (payloads[0].size() != expected) {
    return BadReply("payloads[0]", absl::StrCat(payloads[0].size(), " bytes"),
                    absl::StrCat(expected));
  }
  ASSIGN_OR_RETURN(fetched.data, AlignedBuffer::Allocate(expected));
  payloads[0].MoveTo(fetched.data.data());
  return fetched;
}

absl::Status Session::Drop(absl::Span<const std::string> names) {
  v1::DropTensorsRequest request;
  request.mutable_names()->Assign(names.begin(), names.end());
  return Drop(request);
}

absl::Status Session::DropAll() {
  v1::DropTensorsRequest request;
  request.set_all(true);
  return Drop(request);
}

absl::Status Session::Drop(const v1::DropTensorsRequest& request) {
  ASSIGN_OR_RETURN(const grpc::ByteBuffer message, JoinMessage(request, {}));
  return changes_
      ->Change(absl::InfiniteFuture(),
               wire_->Sender(absl::StrCat(kService, "DropTensors"), message,
                             absl::InfiniteFuture()))
      .status();
}

absl::StatusOr<std::vector<v1::KeptTensorInfo>> Session::List() {
  ASSIGN_OR_RETURN(const grpc::ByteBuffer message,
                   JoinMessage(v1::ListTensorsRequest(), {}));
  ASSIGN_OR_RETURN(
      grpc::ByteBuffer reply,
      changes_->Read(absl::InfiniteFuture(),
                     wire_->Sender(absl::StrCat(kService, "ListTensors"),
                                   message, absl::InfiniteFuture())));
  v1::ListTensorsResponse response;
  RETURN_IF_ERROR(Split(&reply, &response).status());
  return std::vector<v1::KeptTensorInfo>(response.tensors().begin(),
                                         response.tensors().end());
}

absl::StatusOr<OperationReply> Session::Run(const OperationCall& call) {
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(Validate(call.operation));
  RETURN_IF_ERROR(CheckMetadata(call));
  ASSIGN_OR_RETURN(const RegionPlaces places, PlacesOf(call));
  Loan loan;
  int64_t sent_bytes = 0;
  const auto run = [&]() -> absl::StatusOr<grpc::ByteBuffer> {
    ASSIGN_OR_RETURN(
        const grpc::ByteBuffer request,
        EncodeRequest(call, places, PayloadsOf(call, places, loan)));
    sent_bytes = static_cast<int64_t>(request.Length());
    const ChangeSender::Send send = wire_->Sender(call, request);
    return KeepsResults(call) ? changes_->Change(call.deadline, send)
                              : changes_->Read(call.deadline, send);
  };
  absl::StatusOr<grpc::ByteBuffer> message = run();
  loan.AwaitReturn();
  RETURN_IF_ERROR(message.status());
  ASSIGN_OR_RETURN(OperationReply reply, DecodeReply(call, places, &*message));
  reply.sent_bytes = sent_bytes;
  reply.elapsed = absl::Now() - start;
  return reply;
}

}  // namespace convgrad
