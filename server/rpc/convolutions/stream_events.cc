// These functions handle the input of a stream: its header, its frames, and the
// jobs that use them.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "proto/codec/payload_message.h"
#include "server/memory/admission.h"
#include "server/rpc/calls/report.h"
#include "server/rpc/convolutions/stream_call.h"

namespace convgrad {
namespace {

// The stream submits a slice that found the queue full again after this time.
// It waits longer than a new call does, and at the end of the queue, because it
// holds memory.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(20);

// Returns the bytes that the stream reserves for the scratch of one slice's
// job: the size of all its tensors in f32. Saturates.
int64_t ScratchBytesFor(const BatchSlices& slices) {
  const auto slice = slices.SliceOperation(0);
  int64_t bytes = 0;
  for (const TensorUses& uses : {slice->OperandUses(), slice->ResultUses()}) {
    for (const TensorUse& use : uses) {
      if (use.tensor == nullptr) continue;
      TensorDescriptor tensor = *use.tensor;
      tensor.dtype = DataType::kF32;
      bytes = AddCapacity(bytes, CountableBytes(tensor));
    }
  }
  return bytes;
}

}  // namespace

void StreamCall::OnMessage() {
  const absl::Time start = SteadyNow();
  const bool is_header = state_ == State::kHeader;
  absl::Status status = is_header ? Open() : TakeFrame();
  sample_.times.decode.Add(start, SteadyNow());
  if (!status.ok()) return Fail(std::move(status));
  if (is_header) Enter(State::kMemory);
}

void StreamCall::OnHalfClose() {
  if (*cancelled() || FailedToRead()) return Fail(WhyGone());
  failure_ = state_ == State::kStreaming
                 ? input_->CheckComplete()
                 : Missing("header", "no message", "a header, then frames");
  Enter(failure_.ok() ? State::kDraining : State::kClosed);
}

absl::Status StreamCall::Open() {
  v1::ConvStreamRequest head;
  ASSIGN_OR_RETURN(const std::vector<PayloadView> payloads,
                   SplitMessage(&message_, &head, AdmitsHead()));
  RETURN_IF_ERROR(CheckCriticalFields(head));
  TensorResolver resolver(&session(), services().regions);
  if (head.has_header()) {
    RETURN_IF_ERROR(
        resolver.Complete(head.mutable_header()->mutable_operation()));
  }
  ASSIGN_OR_RETURN(StreamOpening opening,
                   DecodeOpening(head, direction_, SizesOf(payloads)));
  DecodedOperation& decoded = opening.decoded;
  sample_.dtype = std::string(NameOf(decoded.operation.dtype()));
  RETURN_IF_ERROR(services().router->CheckLimits(decoded.operation));
  RETURN_IF_ERROR(decoded.support);
  RETURN_IF_ERROR(PlaceKept(&resolver, decoded));
  // Ignores the time of the wire, because it is the same for all backends and
  // overlaps with the work.
  DropUnneeded(&decoded.operation);
  ASSIGN_OR_RETURN(route_, services().router->Route(decoded.operation,
                                                    {opening.options.backend}));
  operation_ =
      std::make_shared<const ConvOperation>(std::move(decoded.operation));
  const Backend& backend = *route_.backend;
  sample_.backend = std::string(backend.name());
  sample_.flops = operation_->flops();
  slices_ = StreamSlices(operation_, opening.slice_items);
  StreamInput::Kept is_kept = {};
  for (size_t i = 0; i < is_kept.size(); ++i) {
    is_kept[i] = places_.operands[i].in_memory();
  }
  input_.emplace(*slices_, is_kept);
  RETURN_IF_ERROR(backend.CheckSupport(*slices_->SliceOperation(0)));
  job_.operation = operation_;
  job_.backend = &backend;
  job_.inspection.count_nonfinite = opening.options.count_nonfinite;
  job_.keeps_weights = true;
  const uint64_t weight_id =
      places_.operands[PositionOf(Operand::kWeight)].constant_id;
  if (weight_id != 0) job_.weight_ids = {weight_id};
  job_.prepaid_scratch_bytes = ScratchBytesFor(*slices_);
  job_.priority = priority();
  job_.client = client();
  job_.deadline = deadline();
  job_.held_bytes = NeededBytes();
  RETURN_IF_ERROR(services().scheduler->Prepare(job_).status());
  return CheckFits();
}

absl::Status StreamCall::PlaceKept(TensorResolver* resolver,
                                   const DecodedOperation& decoded) {
  kept_results_ = decoded.kept_results;
  for (size_t i = 0; i < kept_results_.size(); ++i) {
    if (!session().is_change() || kept_results_[i]) continue;
    return Unsupported(
        absl::StrCat("operation.results[", i, "].destination"), "frames",
        "kept: a change's answer is one message, which a repeat gets again");
  }
  ASSIGN_OR_RETURN(places_, resolver->Places(decoded, nullptr));
  return session().is_change() ? session().Promise() : absl::OkStatus();
}

int64_t StreamCall::NeededBytes() const {
  return std::min(kUncountableBytes,
                  kCallOverheadBytes + kMaxFrameBytes +
                      SlicedTensors::SlotBytes(*slices_, places_) +
                      job_.prepaid_scratch_bytes);
}

absl::Status StreamCall::CheckFits() const {
  const int64_t bytes = NeededBytes();
  const int64_t capacity = services().memory->budget.capacity_bytes();
  if (bytes <= capacity) return absl::OkStatus();
  return LimitExceeded(
      "slice_items",
      absl::StrCat(bytes, " bytes for slices of ", slices_->items(), " items"),
      absl::StrCat("at most ", capacity,
                   ", the server's memory budget for calls"));
}

absl::Status StreamCall::TakeFrame() {
  const absl::Cleanup free_head = [this, bytes = reservation()->bytes()] {
    reservation()->ShrinkTo(bytes);
  };
  v1::ConvStreamRequest head;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitMessage(&message_, &head, AdmitsHead()));
  const std::vector<int64_t> sizes = SizesOf(payloads);
  sample_.bytes_received +=
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  RETURN_IF_ERROR(CheckCriticalFields(head));
  ASSIGN_OR_RETURN(const OperandPiece piece,
                   DecodeFrame(head, *operation_, sizes));
  ASSIGN_OR_RETURN(const int64_t slice, input_->Accept(piece));
  held_ = HeldFrame{piece, slice, std::move(payloads[0])};
  LandHeldFrame();
  return absl::OkStatus();
}

void StreamCall::LandHeldFrame() {
  // Until then a job may read the operands in the slot of this slice.
  if (!held_ || held_->slice >= done_slices_ + SlicedTensors::kSlots) return;
  const auto& [which, bytes] = held_->piece;
  sample_.bytes_copied += bytes.size();
  held_->payload.MoveTo(
      tensors_.OperandByte(PositionOf(which), held_->slice, bytes.begin));
  held_.reset();
}

void StreamCall::Compute() {
  const int64_t slice = done_slices_;
  if (in_flight_.job || slice >= input_->first_incomplete() ||
      !input_->whole_operands_complete() ||
      slot_in_use_[slice % SlicedTensors::kSlots] ||
      retry_at_ != absl::InfiniteFuture()) {
    return;
  }
  Job job = job_;
  job.operation = slices_->SliceOperation(slice);
  job.buffers = tensors_.Begin(slice);
  job.done = [this, slice](const JobOutcome& outcome) {
    OnJobDone(slice, outcome);
  };
  in_flight_.job = true;
  services().scheduler->Submit(std::move(job));
}

void StreamCall::OnSliceDone(const JobOutcome& outcome) {
  in_flight_.job = false;
  if (state_ >= State::kFailing) return;
  if (done_slices_ > 0 && outcome.no_room) {
    retry_at_ = last_event_ + kRetryDelay;
    // The cancelled alarm runs OnAlarm at once, which sets it again.
    if (in_flight_.alarm) in_flight_.alarm->Cancel();
    return;
  }
  Tally(outcome);
  if (!outcome.status.ok()) return Fail(outcome.status);
  const std::vector<SlicedTensors::ReadyResult> ready =
      tensors_.ReadyResultsOf(done_slices_);
  if (!ready.empty()) Enqueue(ready, OwnerOf(done_slices_));
  ++done_slices_;
  if (IsLastDone()) EnqueueTotals();
}

void StreamCall::Tally(const JobOutcome& outcome) {
  AddStages(outcome, &sample_);
  total_.plan_cache_hit &= outcome.plan_cache_hit;
  sample_.plan_cache_hit = total_.plan_cache_hit;
  total_.implementation = outcome.implementation;
  std::vector<int64_t>& counts = total_.findings.nonfinite_counts;
  const std::vector<int64_t>& more = outcome.findings.nonfinite_counts;
  counts.resize(std::max(counts.size(), more.size()), 0);
  for (size_t i = 0; i < more.size(); ++i) counts[i] += more[i];
}

void StreamCall::Read() {
  if (in_flight_.read || held_) return;
  // If both slots are full, the stream stops reading, so that the client waits.
  // It goes on reading if an operand without a batch axis is missing, because
  // the slots stay full without it.
  if (state_ == State::kStreaming && input_->whole_operands_complete() &&
      input_->first_incomplete() < slices_->count() &&
      input_->first_incomplete() >= done_slices_ + SlicedTensors::kSlots) {
    return;
  }
  in_flight_.read = SteadyNow();
  ExpectMessage(kMaxFrameBytes);
  HandOver();
  StartRead(&message_);
}

}  // namespace convgrad
