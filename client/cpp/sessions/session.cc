#include "client/cpp/sessions/session.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/borrowed_slices.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/calls/call_threads.h"
#include "client/cpp/operation_message.h"
#include "client/cpp/sessions/change_sender.h"
#include "client/cpp/sessions/put_request.h"
#include "client/cpp/sessions/session_wire.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

bool KeepsResults(const OperationCall& call) {
  return std::any_of(call.kept_results.begin(), call.kept_results.end(),
                     [](const auto& kept) { return kept.has_value(); });
}

}  // namespace

// A put: its tensors and how they are sent.
struct Session::PendingPut {
  PutRequest request;
  absl::Time deadline;
  int64_t message_limit = 0;  // in payload bytes
  BorrowedSlices borrowed = {};
  OutgoingCall sent = {};
  std::shared_ptr<ChangeSender::Pending> change = {};
};

// An operation and how it is sent.
struct Session::PendingRun {
  OperationCall call;
  absl::Time start = absl::Now();
  RegionPlaces places;
  BorrowedSlices borrowed;
  OutgoingCall sent;
  int64_t sent_bytes = 0;
  // One of these is null.
  std::shared_ptr<ChangeSender::Pending> change;
  std::shared_ptr<ChangeSender::PendingRead> read;
};

absl::StatusOr<grpc::ByteBuffer> Session::Send(
    const std::string& method, const google::protobuf::Message& request,
    std::vector<grpc::Slice> payloads, Access access, absl::Time deadline) {
  ASSIGN_OR_RETURN(grpc::ByteBuffer message,
                   JoinMessage(request, std::move(payloads)));
  const OutgoingCall sent = InOneMessage(method, std::move(message));
  const ChangeSender::Send send = wire_->Sender(sent, deadline);
  if (access == Access::kRead) return changes_->Read(deadline, send);
  OwnedChange owned;
  if (is_durable_) owned = wire_->Own(sent);
  return changes_->Change(deadline, send, std::move(owned));
}

absl::Status Session::Call(const std::string& method,
                           const google::protobuf::Message& request,
                           Access access, absl::Time deadline,
                           google::protobuf::Message* response) {
  ASSIGN_OR_RETURN(grpc::ByteBuffer reply,
                   Send(method, request, {}, access, deadline));
  return SplitReply(&reply, response).status();
}

absl::StatusOr<std::shared_ptr<Session::PendingPut>> Session::BeginPut(
    std::vector<TensorToPut> tensors, const PutOptions& options) {
  // A server that was started again no longer has the region.
  ASSIGN_OR_RETURN(PutRequest request,
                   PutRequest::Make(std::move(tensors),
                                    is_durable_ ? nullptr : options.region,
                                    options.trainer_state));
  // Made in place: the slices that gRPC sends refer to it.
  const std::shared_ptr<PendingPut> put(new PendingPut{
      .request = std::move(request), .deadline = options.deadline});
  ASSIGN_OR_RETURN(
      put->message_limit,
      wire_->MessageLimit(put->request.all_bytes(), put->deadline));
  OwnedChange owned;
  if (is_durable_) {
    ASSIGN_OR_RETURN(const OutgoingCall all, Encode(*put));
    owned = wire_->Own(all);
  }
  ChangeSender::Instead instead;
  if (options.dedupe) {
    RETURN_IF_ERROR(LeaveOutKnown(put.get()));
    // The server may have dropped bytes since it was asked.
    instead = [put = put.get()](const absl::Status& refusal) {
      if (!put->request.SendAllAfter(refusal)) return false;
      absl::StatusOr<OutgoingCall> all = Encode(*put);
      if (all.ok()) put->sent = *std::move(all);
      return all.ok();
    };
  }
  ASSIGN_OR_RETURN(put->sent, Encode(*put));
  ASSIGN_OR_RETURN(
      put->change,
      changes_->Begin(put->deadline, std::move(instead), std::move(owned)));
  return put;
}

absl::Status Session::LeaveOutKnown(PendingPut* put) {
  ASSIGN_OR_RETURN(const auto answer,
                   wire_->Call<v1::HaveTensorsResponse>(
                       SessionMethod("HaveTensors"), put->request.AddDigests(),
                       put->deadline));
  return put->request.LeaveOut(answer);
}

absl::StatusOr<OutgoingCall> Session::Encode(const PendingPut& put) {
  if (put.request.sent_bytes() > put.message_limit ||
      put.request.sent_payloads() > kMaxPayloads) {
    return OutgoingCall{
        .method = SessionMethod("PutTensorsStream"),
        .begin = [&put] { return put.request.Frames(put.borrowed); },
        .is_stream = true};
  }
  ASSIGN_OR_RETURN(grpc::ByteBuffer message, put.request.Message(put.borrowed));
  return InOneMessage(SessionMethod("PutTensors"), std::move(message));
}

absl::StatusOr<int64_t> Session::Finish(PendingPut* put) {
  absl::StatusOr<grpc::ByteBuffer> reply =
      changes_->Finish(put->change, wire_->Sender(put->sent, put->deadline));
  put->sent = {};
  put->borrowed.AwaitRelease();
  RETURN_IF_ERROR(reply.status());
  v1::PutTensorsResponse response;
  RETURN_IF_ERROR(SplitReply(&*reply, &response).status());
  return response.version();
}

template <typename Result, typename Pending>
std::future<absl::StatusOr<Result>> Session::Submit(
    absl::StatusOr<std::shared_ptr<Pending>> pending) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<Result>>>();
  std::future<absl::StatusOr<Result>> future = promise->get_future();
  if (!pending.ok()) {
    promise->set_value(pending.status());
    return future;
  }
  // A change that has begun is finished even if the session is being destroyed.
  threads_->Post([this, promise, pending = *pending](bool /*cancelled*/) {
    promise->set_value(Finish(pending.get()));
  });
  return future;
}

std::future<absl::StatusOr<int64_t>> Session::SubmitPut(
    std::vector<TensorToPut> tensors, const PutOptions& options) {
  return Submit<int64_t>(BeginPut(std::move(tensors), options));
}

absl::StatusOr<int64_t> Session::Put(absl::Span<const TensorToPut> tensors,
                                     const PutOptions& options) {
  ASSIGN_OR_RETURN(const auto put,
                   BeginPut({tensors.begin(), tensors.end()}, options));
  return Finish(put.get());
}

absl::StatusOr<int64_t> Session::Put(const std::string& name,
                                     const TensorDescriptor& descriptor,
                                     absl::Span<const std::byte> bytes) {
  return Put({{name, descriptor, bytes}});
}

absl::StatusOr<std::shared_ptr<Session::PendingRun>> Session::BeginRun(
    OperationCall call) {
  auto run = std::make_shared<PendingRun>();
  run->call = std::move(call);
  RETURN_IF_ERROR(Validate(run->call.operation));
  RETURN_IF_ERROR(CheckOptions(run->call));
  const bool is_change = KeepsResults(run->call);
  if (is_change && is_durable_) run->call.region = nullptr;
  ASSIGN_OR_RETURN(run->places, PlacesOf(run->call));
  ASSIGN_OR_RETURN(
      grpc::ByteBuffer message,
      EncodeRequest(run->call, run->places,
                    PayloadsOf(run->call, run->places, run->borrowed)));
  run->sent_bytes = static_cast<int64_t>(message.Length());
  run->sent = InOneMessage(MethodOf(run->call.operation), std::move(message));
  run->sent.call = &run->call;
  if (!is_change) {
    // A lost attempt might write to the region after a repeat's end.
    const bool may_repeat =
        std::none_of(run->places.results.begin(), run->places.results.end(),
                     [](const auto& place) { return place.has_value(); });
    ASSIGN_OR_RETURN(run->read, changes_->BeginRead(may_repeat));
    return run;
  }
  OwnedChange owned;
  if (is_durable_) owned = wire_->Own(run->sent);
  ASSIGN_OR_RETURN(run->change, changes_->Begin(run->call.deadline, nullptr,
                                                std::move(owned)));
  return run;
}

absl::StatusOr<OperationReply> Session::Finish(PendingRun* run) {
  const ChangeSender::Send send = wire_->Sender(run->sent, run->call.deadline);
  absl::StatusOr<grpc::ByteBuffer> message =
      run->change ? changes_->Finish(run->change, send)
                  : changes_->FinishRead(run->read, run->call.deadline, send);
  run->sent = {};
  run->borrowed.AwaitRelease();
  RETURN_IF_ERROR(message.status());
  ASSIGN_OR_RETURN(OperationReply reply,
                   DecodeReply(run->call, run->places, &*message));
  reply.sent_bytes = run->sent_bytes;
  reply.elapsed = absl::Now() - run->start;
  return reply;
}

std::future<absl::StatusOr<OperationReply>> Session::SubmitRun(
    OperationCall call) {
  return Submit<OperationReply>(BeginRun(std::move(call)));
}

absl::StatusOr<OperationReply> Session::Run(const OperationCall& call) {
  ASSIGN_OR_RETURN(const auto run, BeginRun(call));
  return Finish(run.get());
}

}  // namespace convgrad
