#include "client/cpp/sessions/networks.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "client/cpp/borrowed_slices.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/sessions/session_wire.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "proto/codec/program_codec.h"

namespace convgrad {
namespace {

std::string MethodNamed(absl::string_view name) {
  return absl::StrCat("/convgrad.v1.ConvGradNetworks/", name);
}

// Adds `values` to the request's field `named`, and returns the bytes of values
// that aren't kept. Errors: kInvalidArgument naming `field`.
absl::StatusOr<std::vector<grpc::Slice>> AddValues(
    absl::Span<const ProgramValue> values, absl::string_view field,
    const BorrowedSlices& borrowed,
    google::protobuf::RepeatedPtrField<v1::NamedValue>* named) {
  std::vector<grpc::Slice> payloads;
  for (const ProgramValue& value : values) {
    v1::NamedValue* message = named->Add();
    message->set_name(value.name);
    if (!value.kept.empty()) {
      message->mutable_tensor()->mutable_kept()->set_tensor_id(value.kept);
      continue;
    }
    RETURN_IF_ERROR(CheckByteCount(absl::StrCat(field, ".", value.name),
                                   value.bytes, value.descriptor));
    *message->mutable_tensor() =
        EncodeTensor(value.descriptor, static_cast<int>(payloads.size()));
    payloads.push_back(borrowed.SliceOf(value.bytes));
  }
  return payloads;
}

absl::StatusOr<NamedResult> DecodeValue(const v1::NamedValue& message,
                                        absl::Span<PayloadView> payloads) {
  NamedResult value;
  value.name = message.name();
  const std::string field = absl::StrCat("reply.values.", value.name);
  ASSIGN_OR_RETURN(value.descriptor, DecodeTensor(message.tensor(), 1, field));
  ASSIGN_OR_RETURN(
      value.data,
      TakePayload(field, message.tensor(),
                  ByteSize(value.descriptor).value_or(-1), {}, payloads));
  return value;
}

template <typename Response>
absl::StatusOr<ProgramReply> DecodeValues(grpc::ByteBuffer* message,
                                          Response* response) {
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitReply(message, response));
  ProgramReply reply;
  for (const v1::NamedValue& value : response->values()) {
    ASSIGN_OR_RETURN(NamedResult decoded,
                     DecodeValue(value, absl::MakeSpan(payloads)));
    reply.values.push_back(std::move(decoded));
  }
  reply.report = std::move(*response->mutable_report());
  return reply;
}

// Encodes the run without its inputs.
v1::RunProgramRequest EncodeRun(const ProgramRun& run) {
  v1::RunProgramRequest request;
  request.set_program(run.program);
  request.mutable_fetched()->Assign(run.fetched.begin(), run.fetched.end());
  request.set_compute_dtype(EncodeDataType(run.compute_dtype));
  request.set_tape(run.tape);
  if (!run.fuse) request.set_fuse(false);
  if (run.fast) request.set_fast(*run.fast);
  request.set_recompute(run.recompute);
  request.set_report_groups(run.report_groups);
  request.set_averaged(run.averaged);
  request.set_trainer_state(run.trainer_state);
  if (run.backward) *request.mutable_backward() = *run.backward;
  if (run.update) *request.mutable_update() = *run.update;
  return request;
}

v1::BackwardProgramRequest EncodeBackward(const ProgramBackward& backward) {
  v1::BackwardProgramRequest request;
  request.set_tape(backward.tape);
  request.mutable_input_gradients()->Assign(backward.input_gradients.begin(),
                                            backward.input_gradients.end());
  request.set_leave_parameters(backward.leave_parameters);
  request.set_retain(backward.retain);
  request.set_trainer_state(backward.trainer_state);
  return request;
}

}  // namespace

absl::Status Networks::Load(const std::string& name, const Program& program) {
  RETURN_IF_ERROR(Validate(program));
  v1::LoadProgramRequest request;
  request.set_name(name);
  *request.mutable_program() = EncodeProgram(program);
  return session_
      .Send(MethodNamed("LoadProgram"), request, {}, Session::Access::kChange,
            absl::InfiniteFuture())
      .status();
}

absl::Status Networks::Drop(absl::Span<const std::string> programs,
                            absl::Span<const std::string> tapes) {
  v1::DropProgramsRequest request;
  request.mutable_programs()->Assign(programs.begin(), programs.end());
  request.mutable_tapes()->Assign(tapes.begin(), tapes.end());
  return session_
      .Send(MethodNamed("DropPrograms"), request, {}, Session::Access::kChange,
            absl::InfiniteFuture())
      .status();
}

absl::StatusOr<ProgramReply> Networks::Run(const ProgramRun& run) {
  v1::RunProgramRequest request = EncodeRun(run);
  const bool is_change = run.is_change || !run.tape.empty() || run.backward;
  BorrowedSlices borrowed;
  ASSIGN_OR_RETURN(
      std::vector<grpc::Slice> payloads,
      AddValues(run.inputs, "inputs", borrowed, request.mutable_inputs()));
  absl::StatusOr<grpc::ByteBuffer> message = session_.Send(
      MethodNamed("RunProgram"), request, std::move(payloads),
      is_change ? Session::Access::kChange : Session::Access::kRead,
      run.deadline);
  borrowed.AwaitRelease();
  RETURN_IF_ERROR(message.status());
  v1::RunProgramResponse response;
  ASSIGN_OR_RETURN(ProgramReply reply, DecodeValues(&*message, &response));
  if (response.has_update()) reply.update = response.update();
  return reply;
}

absl::StatusOr<ProgramReply> Networks::Backward(
    const ProgramBackward& backward) {
  v1::BackwardProgramRequest request = EncodeBackward(backward);
  BorrowedSlices borrowed;
  ASSIGN_OR_RETURN(std::vector<grpc::Slice> payloads,
                   AddValues(backward.output_gradients, "output_gradients",
                             borrowed, request.mutable_output_gradients()));
  absl::StatusOr<grpc::ByteBuffer> message = session_.Send(
      MethodNamed("BackwardProgram"), request, std::move(payloads),
      Session::Access::kChange, backward.deadline);
  borrowed.AwaitRelease();
  RETURN_IF_ERROR(message.status());
  v1::BackwardProgramResponse response;
  return DecodeValues(&*message, &response);
}

absl::StatusOr<v1::UpdateParametersResponse> Networks::Update(
    const v1::UpdateParametersRequest& update, absl::Time deadline) {
  v1::UpdateParametersResponse response;
  RETURN_IF_ERROR(session_.Call(MethodNamed("UpdateParameters"), update,
                                Session::Access::kChange, deadline, &response));
  return response;
}

}  // namespace convgrad
