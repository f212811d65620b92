#include "client/cpp/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/call_parts.h"
#include "client/cpp/change_sender.h"
#include "client/cpp/loan.h"
#include "client/cpp/operation_message.h"
#include "client/cpp/session_wire.h"
#include "client/cpp/tensor_messages.h"
#include "proto/codec.h"
#include "proto/payload_message.h"

namespace convgrad {
namespace {

bool KeepsResults(const OperationCall& call) {
  return std::any_of(call.kept_results.begin(), call.kept_results.end(),
                     [](const auto& kept) { return kept.has_value(); });
}

}  // namespace

Session::Session(std::unique_ptr<SessionWire> wire,
                 const v1::SessionResponse& opened)
    : wire_(std::move(wire)),
      changes_(std::make_unique<ChangeSender>(opened.session_id(),
                                              opened.epoch(), opened.number(),
                                              wire_->retries())) {}

Session::~Session() = default;

absl::StatusOr<std::unique_ptr<Session>> Session::Open(
    const ClientOptions& client, const SessionOptions& options) {
  ASSIGN_OR_RETURN(auto wire, SessionWire::Make(client));
  v1::OpenSessionRequest request;
  request.set_open_id(RandomRequestId());
  request.set_name(options.name);
  request.set_lease_seconds(absl::ToDoubleSeconds(options.lease));
  request.set_quota_bytes(options.quota_bytes);
  request.mutable_readers()->Assign(options.readers.begin(),
                                    options.readers.end());
  v1::SessionResponse opened;
  RETURN_IF_ERROR(wire->Call(absl::StrCat(kSessionService, "OpenSession"),
                             request, &opened));
  return std::unique_ptr<Session>(new Session(std::move(wire), opened));
}

absl::StatusOr<std::unique_ptr<Session>> Session::Resume(
    const ClientOptions& client, const std::string& id,
    const std::string& name) {
  ASSIGN_OR_RETURN(auto wire, SessionWire::Make(client));
  v1::ResumeSessionRequest request;
  request.set_session_id(id);
  request.set_name(name);
  v1::SessionResponse resumed;
  RETURN_IF_ERROR(wire->Call(absl::StrCat(kSessionService, "ResumeSession"),
                             request, &resumed));
  return std::unique_ptr<Session>(new Session(std::move(wire), resumed));
}

const std::string& Session::id() const { return changes_->id(); }

int64_t Session::number() const { return changes_->number(); }

absl::Status Session::Renew() {
  v1::RenewSessionRequest request;
  request.set_session_id(id());
  v1::SessionResponse response;
  return wire_->Call(absl::StrCat(kSessionService, "RenewSession"), request,
                     &response);
}

absl::Status Session::Close() {
  v1::CloseSessionRequest request;
  request.set_session_id(id());
  v1::CloseSessionResponse response;
  return wire_->Call(absl::StrCat(kSessionService, "CloseSession"), request,
                     &response);
}

absl::StatusOr<grpc::ByteBuffer> Session::Send(
    const std::string& method, const google::protobuf::Message& request,
    std::vector<grpc::Slice> payloads, Access access, absl::Time deadline) {
  ASSIGN_OR_RETURN(const grpc::ByteBuffer message,
                   JoinMessage(request, std::move(payloads)));
  const ChangeSender::Send send = wire_->Sender(method, message, deadline);
  return access == Access::kChange ? changes_->Change(deadline, send)
                                   : changes_->Read(deadline, send);
}

absl::StatusOr<int64_t> Session::Put(absl::Span<const TensorToPut> tensors,
                                     absl::Time deadline) {
  Loan loan;
  absl::StatusOr<grpc::ByteBuffer> reply = SendPut(tensors, deadline, loan);
  loan.AwaitReturn();
  RETURN_IF_ERROR(reply.status());
  v1::PutTensorsResponse response;
  RETURN_IF_ERROR(SplitReply(&*reply, &response).status());
  return response.version();
}

absl::StatusOr<grpc::ByteBuffer> Session::SendPut(
    absl::Span<const TensorToPut> tensors, absl::Time deadline,
    const Loan& loan) {
  ASSIGN_OR_RETURN(const int64_t bytes, BytesToPut(tensors));
  ASSIGN_OR_RETURN(const int64_t limit, wire_->MessageLimit(bytes, deadline));
  const std::string method = absl::StrCat(kSessionService, "PutTensors");
  if (bytes > limit) {
    return changes_->Change(
        deadline, wire_->Streamer(
                      absl::StrCat(method, "Stream"), deadline,
                      [tensors, &loan] { return PutMessages(tensors, loan); }));
  }
  ASSIGN_OR_RETURN(const grpc::ByteBuffer message, PutMessage(tensors, loan));
  return changes_->Change(deadline, wire_->Sender(method, message, deadline));
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
  const std::string method = absl::StrCat(kSessionService, "GetTensors");
  absl::StatusOr<grpc::ByteBuffer> reply =
      changes_->Read(deadline, wire_->Sender(method, message, deadline));
  if (reply.ok()) return DecodeFetched(wanted, &*reply);
  if (!IsTooLarge(reply.status())) return reply.status();
  FetchedFrames frames(wanted);
  RETURN_IF_ERROR(
      changes_
          ->Read(deadline, wire_->Streamer(absl::StrCat(method, "Stream"),
                                           deadline, message, &frames))
          .status());
  return frames.Take();
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
  return Send(absl::StrCat(kSessionService, "DropTensors"), request, {},
              Access::kChange, absl::InfiniteFuture())
      .status();
}

absl::StatusOr<std::vector<v1::KeptTensorInfo>> Session::List() {
  ASSIGN_OR_RETURN(grpc::ByteBuffer reply,
                   Send(absl::StrCat(kSessionService, "ListTensors"),
                        v1::ListTensorsRequest(), {}, Access::kRead,
                        absl::InfiniteFuture()));
  v1::ListTensorsResponse response;
  RETURN_IF_ERROR(SplitReply(&reply, &response).status());
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
