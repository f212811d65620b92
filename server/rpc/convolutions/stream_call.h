// `StreamCall` handles ConvForwardStream and ConvBackwardStream: it receives
// slices of the batch, computes one after the other, and sends their results.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "grpcpp/alarm.h"
#include "proto/codec/payload_message.h"
#include "server/memory/sliced_tensors.h"
#include "server/rpc/calls/call.h"
#include "server/rpc/calls/strand.h"
#include "server/rpc/convolutions/stream_input.h"
#include "server/rpc/tensors/tensor_resolver.h"

namespace convgrad {

// A stream is always in one State, and has operations in flight at gRPC, the
// budget and the scheduler. Each operation ends with an event, on any thread.
// Each event is a task on the call's strand, so events never overlap. An event
// ends with Continue, which starts the operations that the state allows. The
// strand owns all members; a running job uses some of them. See
// server/rpc/convolutions/README.md.
class StreamCall final : public Call {
 public:
  StreamCall(const Method& method, const CallServices& services,
             grpc::GenericCallbackServerContext* context, Direction direction);

 private:
  // A stream enters the states in this order; only Enter changes the state.
  // Each state before kFailing also leads to kFailing: on an error, a message
  // out of place, a client that has left or is idle for too long, or a
  // deadline. A half-close out of place leads to kClosed. gRPC 1.51 drops the
  // messages of a client that leaves after its half-close, and reports the
  // cancellation a little later. If Call::Begin refuses the call, or the call
  // repeats another one, it goes from kTurn to kEnded. From kFailing on, an
  // event changes only `in_flight_`.
  enum class State {
    //           waits for                  and on             enters
    kTurn,       // its turn, in a session  the decision       kAdmission
    kAdmission,  // 64 KiB of memory        the grant          kHeader
    kHeader,     // the first message       the header         kMemory
    kMemory,     // memory for its slices   the grant          kStreaming
    kStreaming,  // frames, jobs, writes    the half-close     kDraining
    kDraining,   // jobs, writes            the last write     kEnded, with OK
    kClosed,     // a client that leaves    kLeavingTime       kFailing
    kFailing,    // grant, job, write       the last of these  kEnded
    kEnded,      // gRPC                    OnDone             kDone
    kDone,       // the alarm               its return         (is deleted)
  };

  // The operations that the stream has started and that haven't ended, at most
  // one of each kind. A read is represented by the time of its start.
  struct InFlight {
    bool grant = false;
    std::optional<absl::Time> read;
    bool job = false;
    bool write = false;
    std::optional<grpc::Alarm> alarm;

    // Returns whether End has to wait. End doesn't wait for a read, which it
    // makes fail, or for the alarm, which it cancels.
    bool DelaysEnd() const { return grant || job || write; }
  };

  // A received frame that waits for its slice's buffer.
  struct HeldFrame {
    OperandPiece piece;
    int64_t slice;
    PayloadView payload;
  };
  // A result's bytes that are to be sent in frames.
  struct Outgoing {
    SlicedTensors::ReadyResult ready;
    std::shared_ptr<const void> owner;
  };

  // Events of gRPC, of the session, of the budget and of the scheduler.
  void Start() override;
  void OnTurn(const ChangeOrder::Decision& decision) override;
  void OnMemory(const absl::Status& status) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnGone() override;
  void OnJobDone(int64_t slice, const JobOutcome& outcome);
  void OnDone() override;
  void Settle(const absl::Status& status) override;

  // Runs `event` on the strand, and Continue after it. Thread-safe.
  void RunEvent(std::function<void()> event);

  // Changes the state and starts the first action of the new one.
  void Enter(State next);
  // Enters `next`, or kFailing if `status` isn't OK.
  void EnterIf(absl::Status status, State next);
  // Enters kFailing, unless the call has reached it. The call will end with
  // `status`.
  void Fail(absl::Status status);
  // Starts the operations that the state and the operations in flight allow. It
  // may delete the call.
  void Continue();

  // The handlers of the events, on the strand. PassTime comes first in each
  // event.
  void PassTime();
  // Adds the time that `bytes` may take to the client's progress.
  void Credit(int64_t bytes);
  void OnMessage();
  void OnHalfClose();
  void OnSliceDone(const JobOutcome& outcome);
  void OnAlarm();
  absl::Status Open();
  // Finds the places of the stream's tensors that the session keeps.
  absl::Status PlaceKept(TensorResolver* resolver,
                         const DecodedOperation& decoded);
  // Returns the bytes of the budget that the stream takes once it has a header:
  // its tensors, the scratch of one job, a frame that is being read, and the
  // overhead of every call.
  int64_t NeededBytes() const;
  absl::Status CheckFits() const;
  absl::Status TakeFrame();
  void Tally(const JobOutcome& outcome);
  void Enqueue(const std::vector<SlicedTensors::ReadyResult>& ready,
               const std::shared_ptr<const void>& owner);
  void EnqueueTotals();
  // Returns an owner of the results of `slice`. Its deletion frees the slot.
  std::shared_ptr<const void> OwnerOf(int64_t slice);

  // The actions of Continue.
  void LandHeldFrame();
  void Compute();
  void Read();
  void Write();
  void EndWell();

  void SetAlarm();
  // Returns whether the stream waits for the server, not for the client.
  bool IsBusy() const;
  // False before there is a header.
  bool IsLastDone() const {
    return slices_ && done_slices_ == slices_->count();
  }

  const Direction direction_;
  const std::shared_ptr<Strand> strand_;
  State state_ = State::kTurn;
  InFlight in_flight_;
  // The status that the call will end with; set when it enters kClosed or
  // kFailing.
  absl::Status failure_;
  // The end of kClosed.
  absl::Time closed_until_;
  // The time up to which the client has done enough. It advances by the time
  // that the client's bytes take at the least rate. It also advances while the
  // stream waits for the server. It is never later than now.
  absl::Time progress_;
  absl::Time last_event_;
  // The time at which a job that found the queue full is submitted again.
  absl::Time retry_at_ = absl::InfiniteFuture();

  // The operation of the header, without operands that it doesn't need, and its
  // backend; set when the header has come.
  std::shared_ptr<const ConvOperation> operation_;
  Router::Choice route_;
  std::vector<std::optional<KeptResult>> kept_results_;
  // The places of kept tensors, until they are bound.
  TensorPlaces places_;
  std::optional<BatchSlices> slices_;
  std::optional<StreamInput> input_;
  // The fields that the jobs of all slices share. When the call fails, it
  // cancels them together.
  Job job_;

  SlicedTensors tensors_;
  std::optional<HeldFrame> held_;
  std::deque<Outgoing> outgoing_;
  // By slot: whether gRPC still uses its results.
  std::array<bool, SlicedTensors::kSlots> slot_in_use_ = {};
  int64_t done_slices_ = 0;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer frame_;
  // The sum of the outcomes of all slices.
  JobOutcome total_;
};

}  // namespace convgrad
