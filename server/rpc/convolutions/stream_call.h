// A ConvForwardStream or ConvBackwardStream call: slices of the batch come,
// are computed one after the other, and go.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "grpcpp/alarm.h"
#include "proto/codec/payload_message.h"
#include "server/memory/sliced_tensors.h"
#include "server/rpc/calls/call.h"
#include "server/rpc/calls/strand.h"
#include "server/rpc/convolutions/conv_request.h"
#include "server/rpc/convolutions/stream_input.h"
#include "server/rpc/tensors/tensor_resolver.h"

namespace convgrad {

// A stream is always in one State. Beside that there is what is under way with
// others: it comes back as an event, on any thread. Each event is a step on the
// call's strand, so that events never meet, and ends with Continue, which does
// what can be done now. Members are the strand's, but for what a job borrows
// while it is under way. See server/rpc/convolutions/README.md.
class StreamCall final : public Call {
 public:
  StreamCall(const Method& method, const CallServices& services,
             grpc::GenericCallbackServerContext* context, Direction direction);

 private:
  // States are entered in this order, in Enter alone. Each one before kFailing
  // also leads to kFailing: on an error, a message out of place, a client that
  // has gone or does nothing for too long, a deadline. A half-close out of
  // place leads to kClosed: gRPC 1.51 drops what was sent by a client that
  // leaves after it, and tells of its leaving a little later. A call
  // that Call::Begin refuses, and one that is answered with the reply of the
  // call that it repeats, goes from kTurn to kEnded. From kFailing on
  // an event changes nothing but what is under way.
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

  // What the stream has asked of others and isn't back, at most one of each;
  // of reads and jobs also since when.
  struct UnderWay {
    bool grant = false;
    std::optional<absl::Time> read;
    std::optional<absl::Time> job;
    bool write = false;
    std::optional<grpc::Alarm> alarm;

    // Returns whether End has to wait. It needn't for a read, which End makes
    // fail, and for the alarm, which it cancels.
    bool DelaysEnd() const { return grant || job || write; }
  };

  // A frame that was taken, on its way into a slice's buffer.
  struct HeldFrame {
    OperandPiece piece;
    int64_t slice;
    PayloadView payload;
  };
  // Bytes to be sent, in frames.
  struct Outgoing {
    SlicedTensors::ReadyResult ready;
    std::shared_ptr<const void> owner;
  };

  // Events, as others tell them.
  void Start() override;
  void OnTurn(const ChangeOrder::Decision& decision) override;
  void OnMemory(const absl::Status& status) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnGone() override;
  void OnJobDone(int64_t slice, const JobOutcome& outcome);
  void OnDone() override;
  void Settle(const absl::Status& status) override;

  // Runs `event` on the strand, and Continue after it. Called by any thread.
  void Step(std::function<void()> event);

  // Changes the state, and does what the new one begins with.
  void Enter(State next);
  // Enters `next`, or kFailing if `status` isn't OK.
  void EnterIf(absl::Status status, State next);
  // Enters kFailing, unless the call is that far already. `status` is how it
  // will end.
  void Fail(absl::Status status);
  // Does what the state allows and nothing under way hinders. It may delete the
  // call.
  void Continue();

  // What events do, on the strand. PassTime comes first, whatever the event.
  void PassTime();
  // The client has sent or taken so much.
  void Credit(int64_t bytes);
  void OnMessage();
  void OnHalfClose();
  void OnSliceDone(const JobOutcome& outcome);
  void OnAlarm();
  absl::Status Open();
  // Finds what the session keeps of the stream's tensors.
  absl::Status PlaceKept(TensorResolver* resolver,
                         const DecodedOperation& decoded);
  // Returns what the stream takes of the budget once it has a header: its
  // tensors, the scratch of one job, a frame that is being read, and what every
  // call takes.
  int64_t NeededBytes() const;
  absl::Status CheckFits() const;
  absl::Status TakeFrame();
  void Tally(const JobOutcome& outcome, absl::Time submitted);
  void Enqueue(const std::vector<SlicedTensors::ReadyResult>& ready,
               const std::shared_ptr<const void>& owner);
  void EnqueueTotals();
  // Returns an owner of the results of `slice`, which tells when gRPC has let
  // go of them.
  std::shared_ptr<const void> Lend(int64_t slice);

  // What Continue does.
  void LandHeldFrame();
  void Compute();
  void Read();
  void Write();
  void EndWell();

  void SetAlarm();
  // Returns whether it isn't the client that is waited for.
  bool IsBusy() const;
  // False before there is a header.
  bool IsLastDone() const {
    return slices_ && done_slices_ == slices_->count();
  }

  const Direction direction_;
  const std::shared_ptr<Strand> strand_;
  State state_ = State::kTurn;
  UnderWay under_way_;
  // How the call will end; set when it enters kClosed and kFailing.
  absl::Status failure_;
  // When it leaves kClosed.
  absl::Time closed_until_;
  // Up to when the client has done enough: moved on by the time that what it
  // sends and takes needs at the least rate, and by time that isn't the
  // client's, but never beyond now.
  absl::Time progress_;
  absl::Time last_event_;
  // When a job that found no room in the queue is submitted again.
  absl::Time retry_at_ = absl::InfiniteFuture();

  // What the header asks for; set when it has come.
  ConvRequest request_;
  std::vector<std::optional<KeptResult>> kept_results_;
  // Of kept tensors, until they are bound.
  TensorPlaces places_;
  std::optional<BatchSlices> slices_;
  std::optional<StreamInput> input_;
  // What the jobs of all slices have in common. They are cancelled, together,
  // when the call fails.
  Job job_;

  SlicedTensors tensors_;
  std::optional<HeldFrame> held_;
  std::deque<Outgoing> outgoing_;
  // Whether gRPC has results of a slot.
  std::array<bool, SlicedTensors::kSlots> lent_ = {};
  int64_t done_slices_ = 0;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer frame_;
  // Both are sums over the slices.
  JobOutcome total_;
};

}  // namespace convgrad
