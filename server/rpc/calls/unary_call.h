// `UnaryCall` handles an RPC that asks for one operation of any kind, or for
// two in a row, and answers with their results.
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

// Derived classes decode the request and encode the response. Decode runs on
// any thread, Encode on the worker that has computed the operation.
class UnaryCall : public MessageCall {
 public:
  using MessageCall::MessageCall;

  // A checked and routed request.
  struct Request {
    std::shared_ptr<const Operation> operation;
    TensorPlaces places;
    const Backend* backend = nullptr;
    InspectionRequest inspection;
    // The request that is computed after this one in the same call; null if
    // there is none. Its operands may be results of this one. Its own `next` is
    // null.
    std::unique_ptr<Request> next = nullptr;
  };

 protected:
  // Reads and checks the request, chooses the backend, and sets the fields of
  // `sample()` that follow from the request. `reservation()` pays for the
  // message.
  virtual absl::StatusOr<Request> Decode() = 0;

  // Returns the response. `payloads` are the results, in order, without those
  // that were written to memory of the client or of the session. The results of
  // the next request come last. `outcome` is that of both requests together.
  virtual absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<grpc::Slice> payloads) = 0;

  // Returns an upper bound of the response's bytes beside its payloads. The
  // session of a change keeps them for repeats. Requires: Decode was called.
  virtual int64_t ResponseHeadBytes() const { return ReplySize().head_bytes; }

  // Decodes the message, makes the jobs, and submits the first one.
  absl::Status OnMessage() override;
  void Settle(const absl::Status& status) override;

  // Whether the call has made the plan before its job, whose lookup counts as a
  // miss then.
  bool made_plan_ = false;

 private:
  absl::Status CheckArrival() final;
  void OnGone() final;

  // One operation that the call computes.
  struct Work {
    explicit Work(std::shared_ptr<CallMemory> memory)
        : tensors(std::move(memory)) {}

    BoundTensors tensors;
    std::unique_ptr<ActiveJob> job;
  };

  // Makes the job of one operation and binds its tensors, which `reservation`
  // pays for.
  // Errors: those of Scheduler::Prepare and BoundTensors::Bind.
  absl::Status MakeJob(Request request, Reservation* reservation, Work* work);
  // Submits the second job, or makes the response.
  void OnJobDone(JobOutcome outcome);

  Work work_{services().memory};
  std::optional<Work> next_;
  Reservation next_reservation_;
  // The outcome of the operations that have ended.
  JobOutcome outcome_;
  std::atomic<bool> submitted_{false};
};

}  // namespace convgrad
