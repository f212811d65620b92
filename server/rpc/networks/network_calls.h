// These classes handle the RPCs of convgrad.v1.ConvGradNetworks, which load,
// run and train programs of a session.
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
#include "server/rpc/tensors/kept_results.h"

namespace convgrad {

class LoadProgramCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::Status Load(grpc::ByteBuffer* message);
};

class DropProgramsCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::Status Drop(grpc::ByteBuffer* message);
};

// The base of RunProgram and BackwardProgram: an operation on a program whose
// parameters the session keeps.
class ProgramCall : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

 protected:
  // Errors: kNotFound.
  absl::StatusOr<std::shared_ptr<const KeptProgram>> FindProgram(
      const std::string& name);
  // Makes the operation and chooses its backend. If `report_fused`, the report
  // lists the fused steps.
  absl::Status Choose(ProgramRequest request, bool report_fused = false);
  // Adds the places of the program's parameters.
  absl::Status PlaceParameters(std::vector<TensorPlace>* operands);
  // Adds the place of a result that goes back by message as `name`.
  void PlaceReturned(const std::string& name, TensorPlaces* places);
  // Adds the places of the gradients that a backward gives: those of inputs go
  // back by message, those of parameters are added to the session's.
  absl::Status PlaceGradients(TensorPlaces* places);
  // Returns the request, which may have a next one, with operation and places.
  Request Submit(TensorPlaces places, Request request = {});

  // Describes the values that go back, in the order of the operation's results,
  // and adds their payloads' slices.
  void EncodeValues(std::vector<SharedBytes> results,
                    google::protobuf::RepeatedPtrField<v1::NamedValue>* values,
                    std::vector<grpc::Slice>* payloads) const;
  void EncodeRunReport(const JobOutcome& outcome, v1::RunReport* report) const;
  int64_t ResponseHeadBytes() const override;

  std::shared_ptr<const ProgramOperation> operation_;
  const Backend* backend_ = nullptr;

 private:
  // A result that goes back by message.
  struct Returned {
    std::string name;
    size_t position;  // among the operation's results
  };
  std::vector<Returned> returned_;
  // Lists of fused steps, by their results. Empty unless the client asks for
  // them.
  std::vector<std::vector<std::string>> fused_steps_;
};

class RunProgramCall final : public ProgramCall {
 public:
  using ProgramCall::ProgramCall;

 private:
  absl::StatusOr<Request> Decode(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<SharedBytes> results) override;

  // Returns the request for the backend. Requires: program and inputs are
  // found.
  absl::StatusOr<ProgramRequest> RequestOf(const DecodedRun& decoded,
                                           const PlacedTensors& inputs);
  // Errors: kInvalidArgument if the run changes the session and the call is no
  // change.
  absl::Status CheckIsChange();
  absl::Status PlaceRandomness(std::vector<TensorPlace>* operands);
  absl::Status PlaceResults(const std::string& tape, TensorPlaces* places);
  absl::Status PlaceTape(const std::string& tape, TensorPlaces* places);
  // Adds the step that follows the backward to the request.
  absl::Status AddStep(const DecodedUpdate& update, Request* request);

  std::shared_ptr<const KeptProgram> program_;
  // Set if the call has an update.
  std::optional<OptimizerStep> step_;
};

class BackwardProgramCall final : public ProgramCall {
 public:
  using ProgramCall::ProgramCall;

 private:
  absl::StatusOr<Request> Decode(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<SharedBytes> results) override;

  absl::StatusOr<std::shared_ptr<const KeptTape>> FindTape(
      const std::string& name);
  // Adds the places of the operands.
  absl::Status PlaceTape(const std::shared_ptr<const KeptTape>& tape,
                         PlacedTensors* gradients, TensorPlaces* places);
};

class UpdateParametersCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

 private:
  absl::StatusOr<Request> Decode(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<SharedBytes> results) override;

  OptimizerStep step_{&session(), reservation(), ""};
};

}  // namespace convgrad
