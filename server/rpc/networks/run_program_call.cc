// `RunProgramCall` computes a program's outputs from its inputs, with or
// without a tape, a backward or an optimizer step.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/call_metadata.h"
#include "proto/codec/codec.h"
#include "server/rpc/networks/network_calls.h"

namespace convgrad {
namespace {

// The name of the session's randomness: I64 [2], a seed and the number of
// training runs that have used it.
constexpr absl::string_view kRandomness = "#randomness";

}  // namespace

absl::StatusOr<ProgramRequest> RunProgramCall::RequestOf(
    const DecodedRun& decoded, const PlacedTensors& inputs) {
  ProgramRequest run;
  ASSIGN_OR_RETURN(program_, FindProgram(decoded.program));
  run.program = program_->program;
  run.compute_dtype = decoded.compute_dtype;
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
  if (decoded.fuse) run.fuse = *decoded.fuse;
  if (decoded.fast.value_or(false) && !services().fast_convolutions) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kUnsupported, "fast", "true",
                      "false or unset: this server has "
                      "--fast_convolutions=false"});
  }
  run.fast = decoded.fast.value_or(services().fast_convolutions);
  run.recompute = decoded.recompute;
  run.fetched = decoded.fetched;
  if (!decoded.tape.empty()) run.part = ProgramPart::kForwardTape;
  if (!decoded.backward) return run;
  run.part = ProgramPart::kTrain;
  ASSIGN_OR_RETURN(run.input_gradients,
                   InputFlags(*run.program, decoded.backward->inputs));
  run.parameter_gradients = decoded.backward->of_parameters;
  return run;
}

absl::Status RunProgramCall::CheckIsChange(bool averaged) {
  const ProgramRequest& run = operation_->request();
  absl::string_view why;
  if (run.part == ProgramPart::kForwardTape) {
    why = "keeps a tape";
  } else if (run.part == ProgramPart::kTrain && run.parameter_gradients) {
    why = "adds gradients to the session's";
  } else if (!UpdatedStatistics(operation_->program()).empty()) {
    why = "updates statistics: a batch_norm is training";
  } else if (operation_->has_randomness()) {
    why = "draws random numbers: a dropout is training";
  }
  if (why.empty()) return absl::OkStatus();
  if (averaged) {
    return InvalidField(Reason::kUnsupported, "averaged",
                        "a run that changes the session",
                        "a run without tape, backward and training steps");
  }
  if (session().is_change()) return absl::OkStatus();
  return InvalidField(
      Reason::kMissing, "session",
      absl::StrCat("no ", kSequenceKey, " in the metadata of a run that ", why),
      "a change of the session; in Python, change=True");
}

absl::StatusOr<UnaryCall::Request> RunProgramCall::Decode(
    grpc::ByteBuffer* message) {
  v1::RunProgramRequest head;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(message, &head));
  ASSIGN_OR_RETURN(const DecodedRun run, DecodeRun(head, SizesOf(payloads)));
  RETURN_IF_ERROR(
      session().KeepTrainerState(head.trainer_state(), "trainer_state"));
  if (!head.update().trainer_state().empty()) {
    return InvalidField(Reason::kUnsupported, "update.trainer_state", "bytes",
                        "none: the run has a trainer_state of its own");
  }
  TensorResolver resolver(&session(), services().regions, std::move(payloads));
  ASSIGN_OR_RETURN(PlacedTensors inputs,
                   PlaceNamed(run.inputs, "inputs", &resolver));
  ASSIGN_OR_RETURN(ProgramRequest program_request, RequestOf(run, inputs));
  RETURN_IF_ERROR(
      Choose(*program_, std::move(program_request), run.report_groups));
  RETURN_IF_ERROR(CheckIsChange(run.averaged));
  TensorPlaces places;
  for (const ProgramInput& input : operation_->program().inputs) {
    places.operands.push_back(std::move(inputs[input.name].place));
  }
  RETURN_IF_ERROR(PlaceParameters(&places.operands, run.averaged));
  RETURN_IF_ERROR(PlaceRandomness(&places.operands));
  RETURN_IF_ERROR(PlaceResults(run.tape, &places));
  Request request{operation_, std::move(places), backend_, {}};
  if (!run.update) return request;
  step_.emplace(&session(), reservation(), "update.");
  ASSIGN_OR_RETURN(OptimizerStep::Work work,
                   step_->Begin(*run.update, *services().router));
  request.next = std::make_unique<Request>(Request{
      std::move(work.operation), std::move(work.places), work.backend, {}});
  return request;
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
  if (old != tensors.end()) {
    const TensorDescriptor& found = old->second.descriptor;
    if (found != descriptor) {
      return InvalidField(Reason::kShapeMismatch, kRandomness, ToString(found),
                          ToString(descriptor));
    }
    std::copy_n(reinterpret_cast<const int64_t*>(old->second.bytes->data()), 2,
                before);
  }
  // The session keeps the count of this run.
  ASSIGN_OR_RETURN(
      TensorPlace place,
      session().Write(std::string(kRandomness), descriptor, reservation()));
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
  for (const size_t index : UpdatedStatistics(program)) {
    const ProgramParameter& parameter = program.parameters[index];
    ASSIGN_OR_RETURN(
        places->results.emplace_back(),
        session().Write(parameter.name, ParameterDescriptor(parameter),
                        reservation()));
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
    const JobOutcome& outcome, std::vector<SharedBytes> results) {
  v1::RunProgramResponse head;
  if (step_) *head.mutable_update() = step_->End(results.back());
  std::vector<grpc::Slice> payloads;
  EncodeValues(std::move(results), head.mutable_values(), &payloads);
  EncodeRunReport(outcome, head.mutable_report());
  return JoinMessage(head, std::move(payloads));
}

}  // namespace convgrad
