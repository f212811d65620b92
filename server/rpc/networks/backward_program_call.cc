// `BackwardProgramCall` computes the gradients of a program's inputs and
// parameters from a tape and the gradients of its outputs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "server/rpc/networks/network_calls.h"

namespace convgrad {
namespace {

// Checks that the session keeps the parameters in the versions that the run of
// `tape` used. Statistics are excepted, because a run updates them and
// gradients don't depend on them.
absl::Status CheckVersions(const KeptTape& tape, const CallSession& session) {
  const Program& program = *tape.run.program;
  const std::vector<size_t> statistics = UpdatedStatistics(program);
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    if (std::binary_search(statistics.begin(), statistics.end(), i)) continue;
    const std::string& name = program.parameters[i].name;
    ASSIGN_OR_RETURN(const KeptTensor tensor,
                     session.Find(name, 0, absl::StrCat("parameters.", name)));
    if (tensor.version == tape.parameter_versions[i]) continue;
    return FailedPrecondition(
        Reason::kOutOfOrder, absl::StrCat("parameters.", name),
        absl::StrCat("version ", tensor.version),
        absl::StrCat("version ", tape.parameter_versions[i],
                     ", which the tape's run has used: the backward comes "
                     "before the parameters change"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const KeptTape>> BackwardProgramCall::FindTape(
    const std::string& name) {
  const auto& tapes = session().state().tapes;
  const auto found = tapes.find(name);
  if (found != tapes.end()) return found->second;
  return NotFound("tape", absl::StrCat("'", name, "'"),
                  "a tape that a run keeps; a backward uses it up, unless it "
                  "asks to retain it");
}

absl::Status BackwardProgramCall::PlaceTape(
    const std::shared_ptr<const KeptTape>& tape, PlacedTensors* gradients,
    TensorPlaces* places) {
  places->operands.push_back(
      {nullptr, tape->bytes, tape->bytes->data(), tape->bytes->id()});
  for (const std::string& name : operation_->request().output_gradients) {
    PlacedTensor& gradient = gradients->at(name);
    TensorDescriptor expected;
    expected.dims = operation_->shapes().dims.at(name);
    if (gradient.descriptor != expected) {
      return ShapeMismatch(absl::StrCat("output_gradients.", name),
                           ToString(gradient.descriptor), ToString(expected));
    }
    places->operands.push_back(std::move(gradient.place));
  }
  return PlaceParameters(&places->operands);
}

absl::StatusOr<UnaryCall::Request> BackwardProgramCall::Decode() {
  v1::BackwardProgramRequest head;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(&head));
  constexpr char kGradients[] = "output_gradients";
  ASSIGN_OR_RETURN(
      const std::vector<NamedTensor> named,
      DecodeTensors(head.output_gradients(), kGradients, SizesOf(payloads)));
  RETURN_IF_ERROR(
      session().KeepTrainerState(head.trainer_state(), "trainer_state"));
  ASSIGN_OR_RETURN(const std::shared_ptr<const KeptTape> tape,
                   FindTape(head.tape()));
  RETURN_IF_ERROR(CheckVersions(*tape, session()));
  TensorResolver resolver(&session(), services().regions, std::move(payloads));
  ASSIGN_OR_RETURN(PlacedTensors gradients,
                   PlaceNamed(named, kGradients, &resolver));
  ProgramRequest request = tape->run;
  request.part = ProgramPart::kBackward;
  request.fetched.clear();
  for (const auto& [name, gradient] : gradients) {
    request.output_gradients.push_back(name);
  }
  ASSIGN_OR_RETURN(request.input_gradients,
                   InputFlags(*request.program, head.input_gradients()));
  request.parameter_gradients = !head.leave_parameters();
  RETURN_IF_ERROR(Choose(*tape->program, std::move(request)));
  TensorPlaces places;
  RETURN_IF_ERROR(PlaceTape(tape, &gradients, &places));
  RETURN_IF_ERROR(PlaceGradients(&places));
  if (!head.retain()) session().writes()->tapes[head.tape()] = nullptr;
  return Request{operation_, std::move(places), backend_, {}};
}

absl::StatusOr<grpc::ByteBuffer> BackwardProgramCall::Encode(
    const JobOutcome& outcome, std::vector<grpc::Slice> payloads) {
  v1::BackwardProgramResponse head;
  EncodeValues(head.mutable_values());
  EncodeRunReport(outcome, head.mutable_report());
  return JoinMessage(head, std::move(payloads));
}

}  // namespace convgrad
