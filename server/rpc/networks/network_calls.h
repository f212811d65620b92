// The calls of convgrad.v1.ConvGradNetworks: programs of a session are loaded,
// run, and trained.
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

// What RunProgram and BackwardProgram share: an operation on a program whose
// parameters the session keeps.
class ProgramCall : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

 protected:
  // Errors: kNotFound.
  absl::StatusOr<std::shared_ptr<const KeptProgram>> FindProgram(
      const std::string& name);
  // Makes the operation and chooses who computes it. Its report has the groups
  // of steps if `report_groups`.
  absl::Status Choose(ProgramRequest request, bool report_groups = false);
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
  void EncodeValues(std::vector<LentBytes> results,
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
  // By the results of their steps; empty if nobody asked.
  std::vector<std::vector<std::string>> groups_;
};

class RunProgramCall final : public ProgramCall {
 public:
  using ProgramCall::ProgramCall;

 private:
  absl::StatusOr<Request> Decode(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<LentBytes> results) override;

  // Returns what is run, once the program and its inputs are found.
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
  // There if the call has an update.
  std::optional<OptimizerStep> step_;
};

class BackwardProgramCall final : public ProgramCall {
 public:
  using ProgramCall::ProgramCall;

 private:
  absl::StatusOr<Request> Decode(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<LentBytes> results) override;

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
      const JobOutcome& outcome, std::vector<LentBytes> results) override;

  OptimizerStep step_{&session(), reservation(), ""};
};

}  // namespace convgrad
