// A ConvForwardStream or ConvBackwardStream call: slices of the batch come,
// are computed one after the other, and go.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "grpcpp/alarm.h"
#include "server/rpc/call.h"
#include "server/rpc/strand.h"
#include "server/rpc/stream_buffers.h"
#include "server/rpc/stream_input.h"

namespace convgrad {

// Everything that happens to a stream is a step on its strand: steps never
// meet. gRPC, the scheduler, the budget and the alarm call from any thread and
// only leave a step there. Members are the strand's, but for what a job
// borrows while it is active. See "Streams" in server/README.md.
class StreamCall final : public Call {
 public:
  StreamCall(const CallServices& services,
             grpc::GenericCallbackServerContext* context, Direction direction);

 private:
  // A frame that was taken, on its way into a slice's buffer.
  struct HeldFrame {
    OperandPiece piece;
    int64_t slice;
    PayloadView payload;
  };
  // Bytes to be sent, in frames.
  struct Outgoing {
    StreamBuffers::ReadyResult ready;
    std::shared_ptr<const void> owner;
  };

  void Start() override;

  // Come from outside and leave a step.
  void OnMemory(const absl::Status& status) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnGone() override;
  void OnDone() override;
  void OnJobDone(int64_t slice, JobOutcome outcome);
  void Settle(const absl::Status& status) override;
  OpSample* sample() override { return &sample_; }

  // Steps, and what they are made of.
  void OnMemoryStep(absl::Status status);
  void OnMessage();
  void OnHalfClose();
  // Returns a job of this call without its buffers.
  Job JobOf(ConvOperation operation) const;
  absl::Status Open();
  absl::StatusOr<Router::Choice> Admit(StreamOpening* opening);
  absl::Status AskForMemory();
  absl::Status TakeFrame();
  void OnSliceDone(JobOutcome outcome);
  void Tally(JobOutcome outcome);
  void OnAlarm();
  void Fail(absl::Status status);

  // What can be done now is done; ends the call when nothing is left to do.
  // The end of every step.
  void Continue();
  void LandHeldFrame();
  void Compute();
  void Read();
  void Write();
  void MaybeEnd();
  void EndWell();

  void Enqueue(int64_t slice);
  void EnqueueTotals();
  // Returns an owner of the results of `slice`, which tells when gRPC has let
  // go of them.
  std::shared_ptr<const void> Lend(int64_t slice);
  void SetAlarm();
  void DeleteIfQuiet();
  // False before there is a header.
  bool IsLastDone() const {
    return slices_ && done_slices_ == slices_->count();
  }
  // Returns whether it isn't the client that is waited for.
  bool IsBusy() const;

  const Direction direction_;
  const std::shared_ptr<Strand> strand_;

  // Set by Open.
  std::optional<BatchSlices> slices_;
  std::optional<StreamInput> input_;
  CallOptions options_;
  const Backend* backend_ = nullptr;
  std::vector<Prediction> predictions_;

  StreamBuffers buffers_;
  std::optional<HeldFrame> held_;
  std::deque<Outgoing> outgoing_;
  // By slot: gRPC has results of it.
  std::array<bool, StreamBuffers::kSlots> lent_ = {};
  int64_t done_slices_ = 0;

  bool reading_ = false;
  bool half_closed_ = false;
  bool writing_ = false;
  bool job_active_ = false;
  bool awaiting_memory_ = true;
  bool ended_ = false;  // End was called
  bool done_ = false;   // OnDone came
  bool alarm_set_ = false;
  absl::Status failure_;
  // Set when the call can't end well: the job is dropped then.
  const std::shared_ptr<std::atomic<bool>> abandoned_;
  std::unique_ptr<grpc::Alarm> alarm_;

  // When the client last did something, or work for it was done.
  absl::Time progress_;
  absl::Time read_start_;
  absl::Time submitted_at_;
  // When a job that met a full queue is submitted again.
  absl::Time retry_at_ = absl::InfiniteFuture();
  grpc::ByteBuffer message_;
  grpc::ByteBuffer frame_;
  // Sums over the slices.
  JobOutcome total_;
  OpSample sample_;
};

}  // namespace convgrad
