// A call of one message that asks for one operation, of whatever kind, or for
// one and then another, and one message with their results.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/memory/bound_tensors.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

class UnaryCall : public MessageCall {
 public:
  using MessageCall::MessageCall;

 protected:
  // What a message asks for, checked and routed.
  struct Request {
    std::shared_ptr<const Operation> operation;
    TensorPlaces places;
    const Backend* backend = nullptr;
    InspectionRequest inspection;
    // What is computed once this is done, as part of the same call; its
    // operands may be this one's results. May be null; has no next one.
    std::unique_ptr<Request> next = nullptr;
  };

  // Reads and checks the request and chooses who computes it; fills what
  // `sample()` says of that. The message's memory is `reservation()`.
  virtual absl::StatusOr<Request> Decode(grpc::ByteBuffer* message) = 0;

  // Returns the response that carries `results`, in order, those aside that are
  // in memory already; those of the next request are the last ones. `outcome`
  // says what ran, of both together.
  virtual absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<LentBytes> results) = 0;

  // Returns at least the bytes of the response beside its payloads, which are
  // kept with it where the call is a change of a session. Requires: Decode.
  virtual int64_t ResponseHeadBytes() const { return ReplySize().head_bytes; }

 private:
  void OnMessage(grpc::ByteBuffer* message) final;
  absl::Status CheckArrival() final;
  void OnGone() final;
  void Settle(const absl::Status& status) final;

  // One operation that the call computes.
  struct Work {
    explicit Work(std::shared_ptr<CallMemory> memory)
        : tensors(std::move(memory)) {}

    BoundTensors tensors;
    std::unique_ptr<ActiveJob> job;
  };

  // Makes jobs of the request, which wait to be submitted.
  absl::Status Prepare(grpc::ByteBuffer* message);
  // Checks that the response can be sent, and takes what it will keep.
  absl::Status PromiseResponse();
  // `reservation` pays for the operation's tensors.
  absl::Status PrepareWork(Request request, Reservation* reservation,
                           Work* work);
  void Submit(Work* work);
  void OnJobDone(JobOutcome outcome);
  absl::StatusOr<grpc::ByteBuffer> Respond();

  Work work_{services().memory};
  std::optional<Work> next_;
  Reservation next_reservation_;
  // Of the operations that are done.
  JobOutcome outcome_;
  std::atomic<bool> submitted_{false};
  absl::Time submitted_at_;
};

}  // namespace convgrad
