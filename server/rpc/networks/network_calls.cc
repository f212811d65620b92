#include "server/rpc/networks/network_calls.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/codec.h"
#include "proto/codec/program_codec.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// Checks that each value of the program fits in memory, before the server plans
// it. A plan holds at least one value at a time.
absl::Status CheckValues(const ProgramOperation& operation, int64_t capacity) {
  TensorDescriptor value;
  value.dtype = operation.dtype();
  const Program& program = operation.program();
  for (size_t i = 0; i < program.steps.size(); ++i) {
    value.dims = operation.shapes().dims.at(program.steps[i].result);
    const int64_t bytes = CountableBytes(value);
    if (bytes <= capacity) continue;
    return LimitExceeded(
        StepPath(program, i),
        absl::StrCat(bytes, " bytes of ", ToString(value)),
        absl::StrCat("at most ", capacity,
                     ", the server's memory budget for calls"));
  }
  return absl::OkStatus();
}

// Returns the kept tensor of `parameter` in this session.
// Errors: kNotFound; kInvalidArgument if its dtype, dims or layout differ.
absl::StatusOr<KeptTensor> FindParameterIn(const CallSession& session,
                                           const ProgramParameter& parameter) {
  const std::string path = absl::StrCat("parameters.", parameter.name);
  ASSIGN_OR_RETURN(KeptTensor tensor, session.Find(parameter.name, 0, path));
  TensorDescriptor found = tensor.descriptor;
  // A weight in OIX has the same bytes as in NCX.
  if (found.layout == Layout::kOIX) found.layout = Layout::kNCX;
  const TensorDescriptor expected = ParameterDescriptor(parameter);
  if (found == expected) return tensor;
  return ShapeMismatch(
      path, ToString(tensor.descriptor),
      absl::StrCat(ToString(expected), ", as the program says"));
}

}  // namespace

absl::Status HandleLoadProgram(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto head, call->Parse<v1::LoadProgramRequest>());
  RETURN_IF_ERROR(CheckName(head.name(), "name"));
  ASSIGN_OR_RETURN(Program program, DecodeProgram(head.program()));
  const auto& programs = call->session().state().programs;
  const auto old = programs.find(head.name());
  if (old != programs.end()) {
    if (*old->second->program == program) {
      return call->AnswerWith(v1::LoadProgramResponse());
    }
    return FailedPrecondition(
        Reason::kDuplicate, "name",
        absl::StrCat("'", head.name(), "', another program's"),
        "a free name, or DropPrograms before");
  }
  const int64_t bytes =
      static_cast<int64_t>(head.ByteSizeLong()) * kMemoryPerProgramByte;
  auto kept = std::make_shared<KeptProgram>();
  ASSIGN_OR_RETURN(kept->booking, call->session().table()->memory()->Book(
                                      bytes, bytes, call->reservation()));
  kept->program = std::make_shared<const Program>(std::move(program));
  call->session().writes()->programs[head.name()] = std::move(kept);
  RETURN_IF_ERROR(call->session().Promise());
  return call->AnswerWith(v1::LoadProgramResponse());
}

absl::Status HandleDropPrograms(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto head, call->Parse<v1::DropProgramsRequest>());
  for (const std::string& name : head.programs()) {
    RETURN_IF_ERROR(FindProgram(call->session(), name, "programs").status());
    call->session().writes()->programs[name] = nullptr;
  }
  // A tape may be missing, because its backward has dropped it.
  for (const std::string& name : head.tapes()) {
    call->session().writes()->tapes[name] = nullptr;
  }
  RETURN_IF_ERROR(call->session().Promise());
  return call->AnswerWith(v1::DropProgramsResponse());
}

absl::StatusOr<std::shared_ptr<const KeptProgram>> FindProgram(
    const CallSession& session, const std::string& name,
    absl::string_view path) {
  const auto& programs = session.state().programs;
  const auto found = programs.find(name);
  if (found != programs.end()) return found->second;
  return NotFound(path, absl::StrCat("'", name, "'"),
                  "the name of a program that the session has loaded");
}

absl::Status ProgramCall::Choose(const KeptProgram& program,
                                 ProgramRequest request) {
  // The bytes of the operation, measured with programs of 5,000 to 10,000
  // steps, whose names have 4 to 100 bytes.
  constexpr int64_t kStepBytes = 384, kPerMessageByte = 3;
  const int64_t bytes =
      std::ssize(program.program->steps) * kStepBytes +
      program.quota_bytes() / kMemoryPerProgramByte * kPerMessageByte;
  RETURN_IF_ERROR(reservation()->TryGrow(bytes));
  operation_memory_ = reservation()->Split(bytes);
  ASSIGN_OR_RETURN(operation_, ProgramOperation::Make(std::move(request)));
  sample()->operation = std::string(operation_->name());
  sample()->dtype = std::string(NameOf(operation_->dtype()));
  RETURN_IF_ERROR(services().router->CheckLimits(*operation_));
  RETURN_IF_ERROR(
      CheckValues(*operation_, services().memory->budget.capacity_bytes()));
  ASSIGN_OR_RETURN(const Router::Choice route,
                   services().router->Route(*operation_, {}));
  backend_ = route.backend;
  return absl::OkStatus();
}

absl::Status ProgramCall::PlaceParameters(std::vector<TensorPlace>* operands,
                                          bool averaged) {
  for (ProgramParameter parameter : operation_->program().parameters) {
    const std::string average = NameOfKept(parameter.name, "ema");
    if (averaged && session().state().tensors.contains(average)) {
      parameter.name = average;
    }
    ASSIGN_OR_RETURN(const KeptTensor tensor,
                     FindParameterIn(session(), parameter));
    operands->push_back(PlaceOf(tensor));
  }
  return absl::OkStatus();
}

void ProgramCall::PlaceReturned(const std::string& name, TensorPlaces* places) {
  returned_.push_back({name, places->results.size()});
  places->results.emplace_back();
}

absl::Status ProgramCall::PlaceGradients(TensorPlaces* places) {
  const ProgramRequest& request = operation_->request();
  const Program& program = operation_->program();
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (!request.input_gradients[i]) continue;
    PlaceReturned(NameOfKept(program.inputs[i].name, "gradient"), places);
  }
  if (!request.parameter_gradients) return absl::OkStatus();
  for (const ProgramParameter& parameter : program.parameters) {
    if (!parameter.trainable) continue;
    ASSIGN_OR_RETURN(places->results.emplace_back(),
                     session().Add(NameOfKept(parameter.name, "gradient"),
                                   ParameterDescriptor(parameter), "parameters",
                                   reservation()));
  }
  return absl::OkStatus();
}

void ProgramCall::EncodeValues(
    google::protobuf::RepeatedPtrField<v1::NamedValue>* values) const {
  const TensorUses uses = operation_->ResultUses();
  for (size_t i = 0; i < returned_.size(); ++i) {
    v1::NamedValue* value = values->Add();
    value->set_name(returned_[i].name);
    *value->mutable_tensor() =
        EncodeTensor(*uses[returned_[i].position].tensor, static_cast<int>(i));
  }
}

int64_t ProgramCall::ResponseHeadBytes() const {
  // For each name: its length prefix, the fields around it and the fields of
  // its tensor.
  constexpr int64_t kPerName = 160;
  int64_t bytes = UnaryCall::ResponseHeadBytes();
  for (const Returned& returned : returned_) {
    bytes += std::ssize(returned.name) + kPerName;
  }
  for (const FusedSteps& fused : fused_steps_) {
    for (const std::string& name : fused.values) {
      bytes += std::ssize(name) + kPerName;
    }
  }
  return bytes;
}

void ProgramCall::EncodeRunReport(const JobOutcome& outcome,
                                  v1::RunReport* report) const {
  report->set_backend(std::string(backend_->name()));
  report->set_queue_seconds(absl::ToDoubleSeconds(outcome.queue));
  report->set_plan_seconds(absl::ToDoubleSeconds(sample_.times.plan.busy));
  report->set_compute_seconds(absl::ToDoubleSeconds(outcome.run.compute));
  report->set_plan_cache_hit(outcome.plan_cache_hit);
  for (const auto& [step, time] : outcome.run.steps) {
    (*report->mutable_step_seconds())[std::string(step)] =
        absl::ToDoubleSeconds(time);
  }
  report->set_tape_bytes(operation_->request().tape_bytes);
  for (const FusedSteps& fused : fused_steps_) {
    v1::RunReport::Group* group = report->add_groups();
    group->mutable_values()->Assign(fused.values.begin(), fused.values.end());
    group->set_fast(fused.is_fast);
  }
}

}  // namespace convgrad
