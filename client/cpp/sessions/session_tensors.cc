// Implements how a session fetches, drops and lists its tensors.
#include <string>
#include <utility>
#include <vector>

#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/sessions/change_sender.h"
#include "client/cpp/sessions/fetched_tensor.h"
#include "client/cpp/sessions/session.h"
#include "client/cpp/sessions/session_wire.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

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
  absl::StatusOr<grpc::ByteBuffer> reply =
      Send(SessionMethod("GetTensors"), request, {}, Access::kRead, deadline);
  if (reply.ok()) return DecodeFetched(&*reply);
  if (!IsTooLarge(reply.status())) return reply.status();
  ASSIGN_OR_RETURN(grpc::ByteBuffer message, JoinMessage(request, {}));
  OutgoingCall streamed =
      InOneMessage(SessionMethod("GetTensorsStream"), std::move(message));
  FetchedFrames frames;
  streamed.is_stream = true;
  streamed.frames = &frames;
  RETURN_IF_ERROR(
      changes_->Read(deadline, wire_->Sender(streamed, deadline)).status());
  return frames.Take();
}

absl::Status Session::Drop(absl::Span<const std::string> names) {
  v1::DropTensorsRequest request;
  request.mutable_names()->Assign(names.begin(), names.end());
  return SendDrop(request);
}

absl::Status Session::DropAll() {
  v1::DropTensorsRequest request;
  request.set_all(true);
  return SendDrop(request);
}

absl::Status Session::SendDrop(const v1::DropTensorsRequest& request) {
  return Send(SessionMethod("DropTensors"), request, {}, Access::kChange,
              absl::InfiniteFuture())
      .status();
}

absl::StatusOr<std::vector<v1::KeptTensorInfo>> Session::List() {
  v1::ListTensorsResponse response;
  RETURN_IF_ERROR(Call(SessionMethod("ListTensors"), v1::ListTensorsRequest(),
                       Access::kRead, absl::InfiniteFuture(), &response));
  return std::vector<v1::KeptTensorInfo>(response.tensors().begin(),
                                         response.tensors().end());
}

}  // namespace convgrad
