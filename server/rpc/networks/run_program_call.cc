// `RunProgramCall` computes a program's outputs from its inputs, with or
// without a tape, a backward or an optimizer step.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/next_count.h"
#include "backends/core/status.h"
#include "proto/call_metadata.h"
#include "server/rpc/networks/network_calls.h"

namespace convgrad {
namespace {

// The name of the session's randomness: I64 [2], a seed and the number of
// training runs that have used it.
constexpr absl::string_view kRandomness = "#randomness";

// Returns the groups of steps that the plan fuses. Each step is in one group.
std::vector<FusedSteps> FusedStepsOf(const Plan& plan, const Program& program) {
  std::vector<FusedSteps> fused = plan.groups();
  if (!fused.empty()) return fused;
  for (const ProgramStep& step : program.steps) {
    fused.push_back({{step.result}});
  }
  return fused;
}

}  // namespace

absl::StatusOr<ProgramRequest> RunProgramCall::ProgramRequestOf() {
  ProgramRequest run;
  ASSIGN_OR_RETURN(program_,
                   FindProgram(session(), head_.program(), "program"));
  run.program = program_->program;
  run.compute_dtype = run_.compute_dtype;
  for (const ProgramInput& input : run.program->inputs) {
    const auto found = inputs_.find(input.name);
    if (found == inputs_.end()) {
      return InvalidField(Reason::kMissing, "inputs", "nothing",
                          absl::StrCat("a tensor '", input.name, "'"));
    }
    run.inputs.push_back(found->second.descriptor);
  }
  if (inputs_.size() > run.inputs.size()) {
    return InvalidField(Reason::kNotFound, "inputs",
                        absl::StrCat(inputs_.size(), " tensors"),
                        absl::StrCat("the program's ", run.inputs.size()));
  }
  if (head_.has_fuse()) run.fuse = head_.fuse();
  const bool may_be_fast = services().config->fast_convolutions;
  if (head_.fast() && !may_be_fast) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kUnsupported, "fast", "true",
                      "false or unset: this server has "
                      "--fast_convolutions=false"});
  }
  run.fast = head_.has_fast() ? head_.fast() : may_be_fast;
  run.recompute = head_.recompute();
  run.fetched.assign(head_.fetched().begin(), head_.fetched().end());
  if (!head_.tape().empty()) run.part = ProgramPart::kForwardTape;
  if (!head_.has_backward()) return run;
  run.part = ProgramPart::kTrain;
  ASSIGN_OR_RETURN(
      run.input_gradients,
      InputFlags(*run.program, head_.backward().input_gradients()));
  run.parameter_gradients = !head_.backward().leave_parameters();
  return run;
}

absl::Status RunProgramCall::CheckMayTrain() {
  if (!IsOwner(CallerOf(permit()), *session().session())) return OwnersAlone();
  if (permit().role() >= ClientRole::kTrain) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied,
                   {Reason::kForbidden, "backward",
                    absl::StrCat("one by the role ", NameOf(permit().role())),
                    std::string(NameOf(ClientRole::kTrain))});
}

absl::Status RunProgramCall::CheckIsChange() {
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
  if (head_.averaged()) {
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

absl::Status RunProgramCall::OnMessage() {
  {
    const auto measured = sample()->times.decode.Measure();
    ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(&head_));
    ASSIGN_OR_RETURN(run_, DecodeRun(head_, SizesOf(payloads)));
    if (head_.has_backward()) RETURN_IF_ERROR(CheckMayTrain());
    RETURN_IF_ERROR(
        session().KeepTrainerState(head_.trainer_state(), "trainer_state"));
    if (!head_.update().trainer_state().empty()) {
      return InvalidField(Reason::kUnsupported, "update.trainer_state", "bytes",
                          "none: the run has a trainer_state of its own");
    }
    TensorResolver resolver(&session(), services().regions,
                            std::move(payloads));
    ASSIGN_OR_RETURN(inputs_, PlaceNamed(run_.inputs, "inputs", &resolver));
    ASSIGN_OR_RETURN(ProgramRequest request, ProgramRequestOf());
    RETURN_IF_ERROR(Choose(*program_, std::move(request)));
  }
  const bool has_tape = operation_->request().part == ProgramPart::kForwardTape;
  if (!has_tape && !head_.report_groups()) return UnaryCall::OnMessage();
  std::shared_ptr<const Plan> known =
      services().scheduler->FindPlan(*backend_, *operation_);
  if (known != nullptr) {
    RETURN_IF_ERROR(UsePlan(std::move(known)));
    return UnaryCall::OnMessage();
  }
  const auto make = [this]() -> absl::Status {
    const auto measured = sample()->times.plan.Measure();
    ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan,
                     services().scheduler->MakePlan(*backend_, *operation_));
    made_plan_ = true;
    return UsePlan(std::move(plan));
  };
  ContinueOn(services().plan, make, [this] {
    absl::Status status = UnaryCall::OnMessage();
    if (!status.ok()) End(std::move(status));
  });
  return absl::OkStatus();
}

absl::Status RunProgramCall::UsePlan(std::shared_ptr<const Plan> plan) {
  if (head_.report_groups()) {
    fused_steps_ = FusedStepsOf(*plan, operation_->program());
  }
  if (operation_->request().part != ProgramPart::kForwardTape) {
    return absl::OkStatus();
  }
  ProgramRequest request = operation_->request();
  request.tape_bytes = plan->tape_bytes();
  ASSIGN_OR_RETURN(operation_, ProgramOperation::Make(std::move(request)));
  return absl::OkStatus();
}

absl::StatusOr<UnaryCall::Request> RunProgramCall::Decode() {
  RETURN_IF_ERROR(CheckIsChange());
  TensorPlaces places;
  for (const ProgramInput& input : operation_->program().inputs) {
    places.operands.push_back(std::move(inputs_[input.name].place));
  }
  RETURN_IF_ERROR(PlaceParameters(&places.operands, head_.averaged()));
  RETURN_IF_ERROR(PlaceRandomness(&places.operands));
  RETURN_IF_ERROR(PlaceResults(&places));
  Request request{operation_, std::move(places), backend_, {}};
  // The memory of the message is no longer reserved when the operation runs.
  v1::RunProgramRequest().Swap(&head_);
  if (!run_.update) return request;
  step_.emplace(&session(), reservation(), "update.");
  ASSIGN_OR_RETURN(Request update,
                   step_->Begin(*run_.update, *services().router));
  request.next = std::make_unique<Request>(std::move(update));
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
  const int64_t now[2] = {before[0], NextCount(before[1])};
  std::copy_n(now, 2, reinterpret_cast<int64_t*>(place.data));
  operands->push_back(std::move(place));
  return absl::OkStatus();
}

absl::Status RunProgramCall::PlaceResults(TensorPlaces* places) {
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
  if (run.part == ProgramPart::kForwardTape) return PlaceTape(places);
  return run.part == ProgramPart::kTrain ? PlaceGradients(places)
                                         : absl::OkStatus();
}

absl::Status RunProgramCall::PlaceTape(TensorPlaces* places) {
  const std::string& tape = head_.tape();
  RETURN_IF_ERROR(CheckName(tape, "tape"));
  if (session().state().tapes.contains(tape)) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        {Reason::kDuplicate, "tape",
         absl::StrCat("'", tape, "', which the session keeps"), "a free name"});
  }
  ASSIGN_OR_RETURN(std::shared_ptr<KeptBytes> bytes,
                   session().table()->memory()->Take(
                       operation_->request().tape_bytes, reservation()));
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

void RunProgramCall::Settle(const absl::Status& status) {
  inputs_.clear();
  UnaryCall::Settle(status);
}

absl::StatusOr<grpc::ByteBuffer> RunProgramCall::Encode(
    const JobOutcome& outcome, std::vector<grpc::Slice> payloads) {
  v1::RunProgramResponse head;
  if (step_) {
    *head.mutable_update() = step_->End(payloads.back());
    payloads.pop_back();
  }
  EncodeValues(head.mutable_values());
  EncodeRunReport(outcome, head.mutable_report());
  return JoinMessage(head, std::move(payloads));
}

}  // namespace convgrad
