// A ConvForward or ConvBackward call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/rpc/operation_buffers.h"
#include "server/rpc/unary_call.h"

namespace convgrad {

class ComputeCall final : public UnaryCall {
 public:
  ComputeCall(const CallServices& services,
              grpc::GenericCallbackServerContext* context, Direction direction);

 private:
  // What a request asks for, checked and routed.
  struct Plea {
    DecodedOperation decoded;
    RequestBytes bytes;
    CallOptions options;
    Router::Choice route;
  };

  void Start() override;
  void OnRequest() override;
  void OnGone() override;
  void Settle(const absl::Status& status) override;
  OpSample* sample() override { return &sample_; }

  // Reads and checks the request and fills `job_`.
  absl::Status Prepare();
  // Parses the head of a request of this type.
  template <typename Request>
  absl::StatusOr<Plea> Parse();
  absl::Status CheckDeclared(int64_t received);
  // Checks what is asked for against the server's limits.
  absl::Status CheckLimits(const DecodedOperation& decoded) const;
  void OnJobDone(JobOutcome outcome);
  template <typename Response>
  absl::StatusOr<grpc::ByteBuffer> Encode(const JobOutcome& outcome);

  const Direction direction_;
  // Payload bytes that the client declared, -1 if it didn't.
  int64_t declared_bytes_ = -1;
  OperationBuffers buffers_;
  // Moved to the scheduler, but for what the response needs.
  Job job_;
  ConvOperation operation_;
  std::vector<Prediction> predictions_;
  // Of operation_.results; nullopt for those that the response carries.
  std::vector<std::optional<RegionRange>> result_regions_;
  std::atomic<bool> submitted_{false};
  absl::Time submitted_at_;
  OpSample sample_;
};

}  // namespace convgrad
