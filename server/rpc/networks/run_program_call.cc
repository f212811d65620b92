// RunProgram: from a program's inputs to its outputs, with or without a tape or
// a backward.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/codec/codec.h"
#include "proto/codec/codec_enums.h"
#include "server/rpc/networks/network_calls.h"

namespace convgrad {
namespace {

// The session's randomness: I64 [2], a seed and the number of training runs
// that have used it.
constexpr absl::string_view kRandomness = "#randomness";

absl::Status CheckOptions(const v1::RunProgramRequest& head) {
  if (head.has_update() &&
      (!head.has_backward() || head.backward().leave_parameters())) {
    return InvalidField(Reason::kMissing, "backward",
                        "an update without gradients of parameters",
                        "a backward that gives them");
  }
  if (head.tape().empty() || !head.has_backward()) return absl::OkStatus();
  return InvalidField(Reason::kUnsupported, "tape",
                      absl::StrCat("'", head.tape(), "' beside backward"),
                      "one of them: a backward in the same call needs no tape");
}

absl::StatusOr<DataType> ComputeDtypeOf(v1::DataType dtype) {
  if (dtype == v1::DATA_TYPE_UNSPECIFIED) return DataType::kF32;
  const std::optional<DataType> known = DecodeDataType(dtype);
  if (known == DataType::kF32 || known == DataType::kBF16) return *known;
  return MakeError(absl::StatusCode::kUnimplemented,
                   {Reason::kUnsupported, "compute_dtype",
                    v1::DataType_Name(dtype), "F32 or BF16"});
}

}  // namespace

absl::StatusOr<ProgramRequest> RunProgramCall::DecodeRun(
    const v1::RunProgramRequest& head, const PlacedTensors& inputs) {
  RETURN_IF_ERROR(CheckOptions(head));
  ProgramRequest run;
  ASSIGN_OR_RETURN(program_, FindProgram(head.program()));
  run.program = program_->program;
  ASSIGN_OR_RETURN(run.compute_dtype, ComputeDtypeOf(head.compute_dtype()));
  for (const ProgramInput& input : run.program->inputs) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) {
      return InvalidField(Reason::kMissing, "inputs", "nothing",
                          absl::StrCat("a tensor '", input.name, "'"));
    }
    run.inputs.push_back(found->second.descriptor);
  }
  if (inputs.size() > run.inputs.size()) {
    return InvalidField(Reason::kNotFound, "inputs",
                        absl::StrCat(inputs.size(), " tensors"),
                        absl::StrCat("the program's ", run.inputs.size()));
  }
  if (head.has_fuse()) run.fuse = head.fuse();
  run.recompute = head.recompute();
  run.fetched.assign(head.fetched().begin(), head.fetched().end());
  if (!head.tape().empty()) run.part = ProgramPart::kForwardTape;
  if (!head.has_backward()) return run;
  run.part = ProgramPart::kTrain;
  ASSIGN_OR_RETURN(run.input_gradients,
                   InputFlags(*run.program, head.backward().input_gradients()));
  run.parameter_gradients = !head.backward().leave_parameters();
  return run;
}

absl::Status RunProgramCall::CheckIsChange(const v1::RunProgramRequest& head,
                                           const Program& program) {
  const bool changes =
      !head.tape().empty() || !UpdatedStatistics(program).empty() ||
      operation_->has_randomness() ||
      (head.has_backward() && !head.backward().leave_parameters());
  return changes ? session().CheckChange("session") : absl::OkStatus();
}

absl::StatusOr<UnaryCall::Request> RunProgramCall::Decode(
    grpc::ByteBuffer* message) {
  v1::RunProgramRequest head;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(message, &head));
  ASSIGN_OR_RETURN(PlacedTensors inputs,
                   PlaceNamed(head.inputs(), std::move(payloads), "inputs",
                              session(), services().regions));
  ASSIGN_OR_RETURN(ProgramRequest run, DecodeRun(head, inputs));
  RETURN_IF_ERROR(Choose(std::move(run), head.report_groups()));
  const Program& program = operation_->program();
  RETURN_IF_ERROR(CheckIsChange(head, program));
  TensorPlaces places;
  for (const ProgramInput& input : program.inputs) {
    places.operands.push_back(std::move(inputs[input.name].place));
  }
  RETURN_IF_ERROR(PlaceParameters(&places.operands));
  RETURN_IF_ERROR(PlaceRandomness(&places.operands));
  RETURN_IF_ERROR(PlaceResults(head.tape(), &places));
  Request request;
  if (head.has_update()) RETURN_IF_ERROR(AddStep(head.update(), &request));
  return Submit(std::move(places), std::move(request));
}

absl::Status RunProgramCall::AddStep(const v1::UpdateParametersRequest& head,
                                     Request* request) {
  step_.emplace(&session(), reservation(), "update.");
  ASSIGN_OR_RETURN(OptimizerStep::Work work, step_->Begin(head));
  auto next = std::make_unique<Request>();
  ASSIGN_OR_RETURN(const Router::Choice route,
                   services().router->Route(*work.operation, {}));
  next->operation = std::move(work.operation);
  next->places = std::move(work.places);
  next->backend = route.backend;
  request->next = std::move(next);
  return absl::OkStatus();
}

absl::Status RunProgramCall::PlaceRandomness(
    std::vector<TensorPlace>* operands) {
  if (!operation_->has_randomness()) return absl::OkStatus();
  TensorDescriptor descriptor;
  descriptor.dtype = DataType::kI64;
  descriptor.dims = {2};
  int64_t before[2] = {};
  const auto& tensors = session().state().tensors;
  const auto old = tensors.find(kRandomness);
  if (old != tensors.end() && old->second.descriptor == descriptor) {
    std::copy_n(reinterpret_cast<const int64_t*>(old->second.bytes->data()), 2,
                before);
  }
  // This run has the next count, which is what stays.
  KeptResults kept(&session(), reservation());
  ASSIGN_OR_RETURN(TensorPlace place,
                   kept.Write(std::string(kRandomness), descriptor));
  const int64_t now[2] = {before[0], before[1] + 1};
  std::copy_n(now, 2, reinterpret_cast<int64_t*>(place.data));
  operands->push_back(std::move(place));
  return absl::OkStatus();
}

absl::Status RunProgramCall::PlaceResults(const std::string& tape,
                                          TensorPlaces* places) {
  const ProgramRequest& run = operation_->request();
  const Program& program = operation_->program();
  for (const std::string& name : run.fetched) PlaceReturned(name, places);
  KeptResults kept(&session(), reservation());
  for (const size_t index : UpdatedStatistics(program)) {
    const ProgramParameter& parameter = program.parameters[index];
    ASSIGN_OR_RETURN(
        TensorPlace place,
        kept.Write(parameter.name, ParameterDescriptor(parameter)));
    places->results.push_back(std::move(place));
  }
  if (run.part == ProgramPart::kForwardTape) return PlaceTape(tape, places);
  return run.part == ProgramPart::kTrain ? PlaceGradients(places)
                                         : absl::OkStatus();
}

absl::Status RunProgramCall::PlaceTape(const std::string& tape,
                                       TensorPlaces* places) {
  RETURN_IF_ERROR(CheckName(tape, "tape"));
  if (session().state().tapes.contains(tape)) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        {Reason::kDuplicate, "tape",
         absl::StrCat("'", tape, "', which the session keeps"), "a free name"});
  }
  TensorDescriptor descriptor;
  descriptor.dtype = DataType::kU8;
  descriptor.dims = {operation_->request().tape_bytes};
  ASSIGN_OR_RETURN(std::shared_ptr<KeptBytes> bytes,
                   session().Take(descriptor, reservation()));
  TensorPlace place;
  place.data = bytes->data();
  place.owner = bytes;
  place.is_kept = true;
  places->results.push_back(std::move(place));
  auto kept = std::make_shared<KeptTape>();
  kept->bytes = std::move(bytes);
  kept->run = operation_->request();
  kept->program = program_;
  for (const ProgramParameter& parameter : operation_->program().parameters) {
    kept->parameter_versions.push_back(
        session().state().tensors.find(parameter.name)->second.version);
  }
  session().writes()->tapes[tape] = std::move(kept);
  return absl::OkStatus();
}

absl::StatusOr<grpc::ByteBuffer> RunProgramCall::Encode(
    const JobOutcome& outcome, std::vector<LentBytes> results) {
  v1::RunProgramResponse head;
  if (step_) *head.mutable_update() = step_->End(results.back());
  std::vector<grpc::Slice> payloads;
  EncodeValues(std::move(results), head.mutable_values(), &payloads);
  EncodeRunReport(outcome, head.mutable_report());
  return JoinMessage(head, std::move(payloads));
}

}  // namespace convgrad
