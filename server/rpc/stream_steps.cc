// What a stream's steps do: messages in, jobs, frames out.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/kernels/nonfinite.h"
#include "proto/payload_message.h"
#include "server/rpc/report.h"
#include "server/rpc/stream_call.h"

namespace convgrad {
namespace {

// Between two tries of a slice that met a full queue. The stream holds memory
// already: it waits longer than a new call would, and at the end of the queue.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(20);

bool IsQueueFull(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = DetailOf(status);
  return detail && detail->reason == Reason::kBusy &&
         detail->field == "server.queue";
}

}  // namespace

void StreamCall::OnMemoryStep(absl::Status status) {
  awaiting_memory_ = false;
  progress_ = absl::Now();
  if (!failure_.ok()) return;
  if (status.ok() && slices_) status = buffers_.Take(*slices_, reservation());
  if (!status.ok()) return Fail(std::move(status));
  if (!slices_) SetAlarm();
}

void StreamCall::OnMessage() {
  const absl::Time start = absl::Now();
  absl::Status status = slices_ ? TakeFrame() : Open();
  sample_.times.decode.Add(start, absl::Now());
  if (!status.ok()) return Fail(std::move(status));
  if (slices_ && !input_) status = AskForMemory();
  if (!status.ok()) Fail(std::move(status));
}

absl::Status StreamCall::Open() {
  v1::ConvStreamRequest head;
  ASSIGN_OR_RETURN(const std::vector<PayloadView> payloads,
                   SplitMessage(&message_, &head));
  RETURN_IF_ERROR(CheckCriticalFields(head));
  ASSIGN_OR_RETURN(StreamOpening opening,
                   DecodeOpening(head, direction_, SizesOf(payloads)));
  ASSIGN_OR_RETURN(Router::Choice route, Admit(&opening));
  backend_ = route.backend;
  predictions_ = std::move(route.predictions);
  sample_.backend = std::string(backend_->name());
  options_ = std::move(opening.options);
  BatchSlices slices =
      StreamSlices(std::move(opening.decoded.operation), opening.slice_items);
  RETURN_IF_ERROR(backend_->CheckSupport(slices.SliceOperation(0)));
  RETURN_IF_ERROR(services().scheduler->CheckRoom(JobOf(slices.operation())));
  slices_.emplace(std::move(slices));
  return absl::OkStatus();
}

absl::StatusOr<Router::Choice> StreamCall::Admit(StreamOpening* opening) {
  ConvOperation& operation = opening->decoded.operation;
  sample_.dtype = std::string(NameOf(operation.dtype()));
  RETURN_IF_ERROR(services().router->CheckLimits(operation));
  RETURN_IF_ERROR(opening->decoded.support);
  DropUnneeded(&operation);
  sample_.flops = operation.flops();
  // The wire is the same for all, and passes beside the work.
  return services().router->Route(
      operation,
      {opening->options.backend, {opening->options.deterministic, 0}});
}

absl::Status StreamCall::AskForMemory() {
  input_.emplace(*slices_);
  const int64_t needed = StreamBuffers::BytesFor(*slices_);
  const int64_t capacity = services().memory->budget.capacity_bytes();
  if (needed > capacity) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     {Reason::kLimitExceeded, "slice_items",
                      absl::StrCat(needed, " bytes for slices of ",
                                   slices_->items(), " items"),
                      absl::StrCat("at most ", capacity,
                                   ", the server's memory budget for calls")});
  }
  awaiting_memory_ = true;
  AwaitMemory(needed);
  return absl::OkStatus();
}

absl::Status StreamCall::TakeFrame() {
  v1::ConvStreamRequest head;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitMessage(&message_, &head));
  const std::vector<int64_t> sizes = SizesOf(payloads);
  sample_.bytes_received +=
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  RETURN_IF_ERROR(CheckCriticalFields(head));
  ASSIGN_OR_RETURN(const OperandPiece piece,
                   DecodeFrame(head, slices_->operation(), sizes));
  ASSIGN_OR_RETURN(const int64_t slice, input_->Accept(piece));
  held_ = HeldFrame{piece, slice, std::move(payloads[0])};
  LandHeldFrame();
  return absl::OkStatus();
}

void StreamCall::LandHeldFrame() {
  // Its slot still has operands that a job reads.
  if (!held_ || held_->slice >= done_slices_ + StreamBuffers::kSlots) return;
  sample_.bytes_copied += held_->piece.bytes.size();
  buffers_.Land(held_->piece, held_->slice, std::move(held_->payload));
  held_.reset();
}

Job StreamCall::JobOf(ConvOperation operation) const {
  Job job;
  job.operation = std::move(operation);
  job.backend = backend_;
  job.priority = priority();
  job.client = client();
  job.deadline = deadline();
  return job;
}

void StreamCall::OnHalfClose() {
  if (*cancelled() || FailedToRead()) return Fail(WhyGone());
  half_closed_ = true;
  if (!slices_) {
    return Fail(InvalidField(Reason::kMissing, "header", "no message",
                             "a header, then frames"));
  }
  absl::Status status = input_->CheckComplete();
  if (!status.ok()) Fail(std::move(status));
}

void StreamCall::Compute() {
  if (!input_ || job_active_ || IsLastDone()) return;
  const int64_t slice = done_slices_;
  if (slice >= input_->first_incomplete() ||
      !input_->whole_operands_complete() ||
      lent_[slice % StreamBuffers::kSlots] ||
      retry_at_ != absl::InfiniteFuture()) {
    return;
  }
  Job job = JobOf(slices_->SliceOperation(slice));
  job.deterministic = options_.deterministic;
  job.inspection.count_nonfinite = options_.count_nonfinite;
  job.buffers = buffers_.ForJob(slice);
  job.keeps_weight = true;
  job.prepaid_scratch_bytes = StreamBuffers::ScratchBytesFor(*slices_);
  job.cancelled = abandoned_;
  job.done = [this, slice](JobOutcome outcome) {
    OnJobDone(slice, std::move(outcome));
  };
  job_active_ = true;
  submitted_at_ = absl::Now();
  services().scheduler->Submit(std::move(job));
}

void StreamCall::OnSliceDone(JobOutcome outcome) {
  job_active_ = false;
  progress_ = absl::Now();
  if (!failure_.ok()) return;
  if (done_slices_ > 0 && IsQueueFull(outcome.status)) {
    retry_at_ = progress_ + kRetryDelay;
    // It comes at once, and is set anew.
    if (alarm_set_) alarm_->Cancel();
    return;
  }
  const absl::Status status = outcome.status;
  Tally(std::move(outcome));
  if (!status.ok()) return Fail(status);
  Enqueue(done_slices_);
  ++done_slices_;
  if (IsLastDone()) EnqueueTotals();
}

void StreamCall::Tally(JobOutcome outcome) {
  sample_.queued = true;
  AddStages(outcome, submitted_at_, &sample_);
  sample_.planned = outcome.planned;
  total_.plan_cache_hit &= outcome.plan_cache_hit;
  sample_.plan_cache_hit = total_.plan_cache_hit;
  total_.implementation = std::move(outcome.implementation);
  std::vector<int64_t>& counts = total_.findings.nonfinite_counts;
  const std::vector<int64_t>& more = outcome.findings.nonfinite_counts;
  counts.resize(std::max(counts.size(), more.size()), 0);
  for (size_t i = 0; i < more.size(); ++i) counts[i] += more[i];
}

void StreamCall::Enqueue(int64_t slice) {
  const std::vector<StreamBuffers::ReadyResult> ready =
      buffers_.ReadyResultsOf(slice);
  if (ready.empty()) return;
  const std::shared_ptr<const void> owner = Lend(slice);
  for (const StreamBuffers::ReadyResult& result : ready) {
    outgoing_.push_back({result, owner});
  }
}

std::shared_ptr<const void> StreamCall::Lend(int64_t slice) {
  const int64_t slot = slice % StreamBuffers::kSlots;
  lent_[slot] = true;
  const auto step = [this, slot] {
    lent_[slot] = false;
    progress_ = absl::Now();
    Continue();
  };
  const std::shared_ptr<LentResults>& results = buffers_.slot(slice);
  // gRPC lets go with locks of its own held, perhaps when the call is over: the
  // step is for another thread, if the call is still there.
  return std::shared_ptr<const void>(
      results.get(),
      [this, step, strand = strand_, results](const void* /*results*/) {
        strand->IfOpen(
            [&] { services().defer([strand, step] { strand->Run(step); }); });
      });
}

void StreamCall::EnqueueTotals() {
  std::vector<StreamBuffers::ReadyResult> ready;
  const std::shared_ptr<const void> owner =
      buffers_.TakeTotals(reservation(), &ready);
  std::vector<int64_t>& counts = total_.findings.nonfinite_counts;
  for (const StreamBuffers::ReadyResult& result : ready) {
    outgoing_.push_back({result, owner});
    // The addends' say nothing of the sum's.
    for (size_t i = 0; i < counts.size(); ++i) {
      const ResultRequest& request = slices_->operation().results[i];
      if (request.which != result.which) continue;
      const DataType dtype = request.descriptor.dtype;
      counts[i] = CountNonfinite(dtype, result.data,
                                 result.range.size() / ByteSizeOf(dtype));
    }
  }
}

void StreamCall::Read() {
  if (reading_ || half_closed_ || held_) return;
  // Both slots full: the client waits. With operands missing that aren't cut,
  // the slots would stay full.
  if (input_ && input_->whole_operands_complete() &&
      input_->first_incomplete() < slices_->count() &&
      input_->first_incomplete() >= done_slices_ + StreamBuffers::kSlots) {
    return;
  }
  reading_ = true;
  read_start_ = absl::Now();
  HandOver();
  StartRead(&message_);
}

void StreamCall::Write() {
  while (!writing_ && !outgoing_.empty()) {
    StreamBuffers::ReadyResult& ready = outgoing_.front().ready;
    if (ready.range.size() == 0) {
      outgoing_.pop_front();
      continue;
    }
    const absl::Time start = absl::Now();
    const ByteRange bytes = FrameAt(ready.range, ready.range.begin);
    absl::StatusOr<grpc::ByteBuffer> frame = JoinMessage(
        EncodeFrame(ready.which, bytes.begin),
        {SliceOver(ready.data, bytes.size(), outgoing_.front().owner)});
    if (!frame.ok()) return Fail(frame.status());
    frame_.Swap(&*frame);
    ready.data += bytes.size();
    ready.range.begin = bytes.end;
    if (ready.range.size() == 0) outgoing_.pop_front();
    sample_.bytes_sent += bytes.size();
    sample_.times.encode.Add(start, absl::Now());
    writing_ = true;
    HandOver();
    StartWrite(&frame_);
  }
}

void StreamCall::EndWell() {
  v1::ConvStreamResponse message;
  v1::StreamEnd* end = message.mutable_end();
  for (const ResultRequest& request : slices_->operation().results) {
    v1::NamedTensor* named = end->add_results();
    named->set_which(EncodeResult(request.which));
    *named->mutable_tensor() = EncodeStreamTensor(request.descriptor);
  }
  sample_.times.total = absl::Now() - arrival();
  EncodeReport(sample_, slices_->operation(), total_, end->mutable_report());
  EncodePredictions(predictions_, end->mutable_report());
  absl::StatusOr<grpc::ByteBuffer> response = JoinMessage(message, {});
  if (!response.ok()) return End(response.status());
  End(absl::OkStatus(), &*response);
}

}  // namespace convgrad
