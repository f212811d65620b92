// These classes and functions handle the RPCs of convgrad.v1.ConvGradNetworks,
// which load, run and train programs of a session.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/core/program/program_operation.h"
#include "convgrad/v1/network.pb.h"
#include "server/rpc/calls/unary_call.h"
#include "server/rpc/networks/network_tensors.h"
#include "server/rpc/networks/optimizer_step.h"

namespace convgrad {

// Handles LoadProgram: checks a program and keeps it in the session.
absl::Status HandleLoadProgram(PlainCall* call);

// Handles DropPrograms.
absl::Status HandleDropPrograms(PlainCall* call);

// Returns the program that the session keeps as `name`. `path` names the field
// that asks for it.
// Errors: kNotFound.
absl::StatusOr<std::shared_ptr<const KeptProgram>> FindProgram(
    const CallSession& session, const std::string& name,
    absl::string_view path);

// `ProgramCall` is the base of RunProgram and BackwardProgram: an operation on
// a program whose parameters the session keeps.
class ProgramCall : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

 protected:
  // Makes the operation on `program` and chooses its backend.
  absl::Status Choose(const KeptProgram& program, ProgramRequest request);
  // Adds the places of the program's parameters; if `averaged`, of their
  // averages where the session keeps them.
  absl::Status PlaceParameters(std::vector<TensorPlace>* operands,
                               bool averaged = false);
  // Adds the place of a result that the response carries as `name`.
  void PlaceReturned(const std::string& name, TensorPlaces* places);
  // Adds the places of the gradients of a backward. The response carries those
  // of inputs; the session adds those of parameters to its sums.
  absl::Status PlaceGradients(TensorPlaces* places);

  // Describes the values that the response carries, in the order of its
  // payloads.
  void EncodeValues(
      google::protobuf::RepeatedPtrField<v1::NamedValue>* values) const;
  void EncodeRunReport(const JobOutcome& outcome, v1::RunReport* report) const;
  int64_t ResponseHeadBytes() const override;

  std::shared_ptr<const ProgramOperation> operation_;
  const Backend* backend_ = nullptr;
  // The report's fused steps. Empty unless the client asks for them.
  std::vector<FusedSteps> fused_steps_;

 private:
  // A result that the response carries.
  struct Returned {
    std::string name;
    size_t position;  // among the operation's results
  };
  std::vector<Returned> returned_;
  // Pays for `operation_`, which describes each step of the program.
  Reservation operation_memory_;
};

// `RunProgramCall` handles RunProgram.
class RunProgramCall final : public ProgramCall {
 public:
  using ProgramCall::ProgramCall;

 private:
  // Reads the message, checks it, and chooses the backend. If a tape or a
  // report needs the plan and the cache lacks it, a planning thread makes the
  // plan and continues the call.
  absl::Status OnMessage() override;
  // Returns the request that OnMessage has read.
  absl::StatusOr<Request> Decode() override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<grpc::Slice> payloads) override;
  void Settle(const absl::Status& status) override;

  // Sets the parts of the operation and the report that only the plan knows.
  // Frees the plan unless the cache keeps it, because the call has reserved no
  // memory for it. The worker then makes it again.
  absl::Status UsePlan(std::shared_ptr<const Plan> plan);
  // Returns the request for the backend. Requires: the inputs are found.
  absl::StatusOr<ProgramRequest> ProgramRequestOf();
  // Errors: kPermissionDenied if the client may compute forwards only, because
  // it isn't the session's owner or hasn't the role kTrain.
  absl::Status CheckMayTrain();
  // Errors: kInvalidArgument if the run changes the session but the call isn't
  // a change, or if it changes the session and reads averages.
  absl::Status CheckIsChange();
  absl::Status PlaceRandomness(std::vector<TensorPlace>* operands);
  absl::Status PlaceResults(TensorPlaces* places);
  absl::Status PlaceTape(TensorPlaces* places);

  // The request, until Decode has used it.
  v1::RunProgramRequest head_;
  DecodedRun run_;
  PlacedTensors inputs_;
  std::shared_ptr<const KeptProgram> program_;
  // The optimizer step; set if the call has an update.
  std::optional<OptimizerStep> step_;
};

// `BackwardProgramCall` handles BackwardProgram.
class BackwardProgramCall final : public ProgramCall {
 public:
  using ProgramCall::ProgramCall;

 private:
  absl::StatusOr<Request> Decode() override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<grpc::Slice> payloads) override;

  absl::StatusOr<std::shared_ptr<const KeptTape>> FindTape(
      const std::string& name);
  // Adds the places of the operands: the tape, the gradients of outputs, and
  // the parameters.
  absl::Status PlaceTape(const std::shared_ptr<const KeptTape>& tape,
                         PlacedTensors* gradients, TensorPlaces* places);
};

// `UpdateParametersCall` handles UpdateParameters.
class UpdateParametersCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

 private:
  absl::StatusOr<Request> Decode() override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<grpc::Slice> payloads) override;

  OptimizerStep step_{&session(), reservation(), ""};
};

}  // namespace convgrad
