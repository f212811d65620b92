// A call of one message that asks for one operation, of whatever kind, and one
// message with its results.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/memory/bound_tensors.h"
#include "server/rpc/call.h"

namespace convgrad {

class UnaryCall : public Call {
 protected:
  // What a message asks for, checked and routed.
  struct Request {
    std::shared_ptr<const Operation> operation;
    TensorPlaces places;
    const Backend* backend = nullptr;
    bool deterministic = true;
    InspectionRequest inspection;
  };

  // `operation` is Operation::name() of what it may ask for.
  UnaryCall(const CallServices& services,
            grpc::GenericCallbackServerContext* context,
            absl::string_view method, Role role, absl::string_view operation);

  // Reads and checks the request and chooses who computes it; fills what
  // `sample()` says of that. The message's memory is `reservation()`.
  virtual absl::StatusOr<Request> Decode(grpc::ByteBuffer* message) = 0;

  // Returns the response that carries `results`, in order, those aside that are
  // in memory already. `outcome` says what ran.
  virtual absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<LentBytes> results) = 0;

  // Counts payloads of `bytes` in the request as received.
  // Errors: kInvalidArgument if that is more than the client declared;
  // kResourceExhausted, reason LIMIT_EXCEEDED, if it is more than a message may
  // have.
  absl::Status CheckReceived(int64_t bytes);
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED.
  absl::Status CheckMessageBytes(absl::string_view what, int64_t bytes) const;

  OpSample* sample() final { return &sample_; }
  // How long the request was on its way.
  absl::Duration receive_time() const { return sample_.times.receive.busy; }

 private:
  void Start() final;
  void OnMemory(const absl::Status& status) final;
  void OnReadDone(bool ok) final;
  void OnSendInitialMetadataDone(bool ok) final;
  void OnGone() final;
  void OnSlowClient() final;
  void Settle(const absl::Status& status) final;

  // What the client declared, or the most that it may send.
  int64_t ExpectedBytes() const;
  // Makes a job of the request, which waits in `job_`.
  absl::Status Prepare();
  void OnJobDone(JobOutcome outcome);
  absl::StatusOr<grpc::ByteBuffer> Respond(const JobOutcome& outcome);

  // Payload bytes that the client declared, -1 if it didn't.
  int64_t declared_bytes_ = -1;
  absl::Time read_start_;
  grpc::ByteBuffer request_;
  BoundTensors tensors_;
  std::unique_ptr<ActiveJob> job_;
  std::atomic<bool> submitted_{false};
  absl::Time submitted_at_;
  OpSample sample_;
};

}  // namespace convgrad
