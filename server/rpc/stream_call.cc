// The life of a stream: what comes from outside, and what can be done next.
#include "server/rpc/stream_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "server/memory/admission.h"
#include "server/rpc/report.h"

namespace convgrad {

StreamCall::StreamCall(const CallServices& services,
                       grpc::GenericCallbackServerContext* context,
                       Direction direction)
    : Call(services, context,
           direction == Direction::kForward ? "ConvForwardStream"
                                            : "ConvBackwardStream",
           RoleFor(direction)),
      direction_(direction),
      strand_(std::make_shared<Strand>()),
      buffers_(services.memory),
      abandoned_(std::make_shared<std::atomic<bool>>(false)),
      progress_(arrival()),
      read_start_(arrival()) {
  sample_.direction = direction;
  total_.plan_cache_hit = true;
}

void StreamCall::Start() {
  sample_.priority = std::string(NameOf(priority()));
  AwaitMemory(kCallOverheadBytes);
}

void StreamCall::OnMemory(const absl::Status& status) {
  strand_->Run([this, status] {
    OnMemoryStep(status);
    Continue();
  });
}

void StreamCall::OnReadDone(bool ok) {
  HandOver();
  strand_->Run([this, ok] {
    reading_ = false;
    progress_ = absl::Now();
    sample_.times.receive.Add(read_start_, progress_);
    if (ended_ || !failure_.ok()) return Continue();
    ok ? OnMessage() : OnHalfClose();
    Continue();
  });
}

void StreamCall::OnWriteDone(bool ok) {
  HandOver();
  strand_->Run([this, ok] {
    writing_ = false;
    frame_.Clear();
    progress_ = absl::Now();
    if (!ok) Fail(WhyGone());
    Continue();
  });
}

void StreamCall::OnGone() {
  strand_->Run([this] {
    Fail(WhyGone());
    Continue();
  });
}

void StreamCall::OnJobDone(int64_t slice, JobOutcome outcome) {
  // Still on the worker: sums are work.
  if (outcome.status.ok()) {
    buffers_.sums().Add(slice);
    if (slice + 1 == slices_->count()) buffers_.sums().Finish();
  }
  strand_->Run([this, outcome = std::move(outcome)] {
    OnSliceDone(outcome);
    Continue();
  });
}

void StreamCall::OnDone() {
  HandOver();
  strand_->Run([this] {
    done_ = true;
    DeleteIfQuiet();
  });
}

void StreamCall::DeleteIfQuiet() {
  if (alarm_set_) return alarm_->Cancel();
  strand_->Close();
  delete this;
}

void StreamCall::SetAlarm() {
  const absl::Time now = absl::Now();
  absl::Time due =
      (IsBusy() ? now : progress_) + services().stream_idle_timeout;
  // A call that failed is past its deadline already, perhaps.
  if (failure_.ok()) due = std::min({due, deadline(), retry_at_});
  alarm_set_ = true;
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(absl::ToChronoTime(std::max(due, now)), [this](bool /*ok*/) {
    HandOver();
    strand_->Run([this] { OnAlarm(); });
  });
}

void StreamCall::OnAlarm() {
  alarm_set_ = false;
  if (done_) return DeleteIfQuiet();
  if (ended_) return;
  const absl::Time now = absl::Now();
  if (retry_at_ <= now) retry_at_ = absl::InfiniteFuture();
  const absl::Duration patience = services().stream_idle_timeout;
  if (deadline() <= now) {
    Fail(WhyGone());
    if (writing_) BreakOff();
    progress_ = now;
  } else if (!IsBusy() && now - progress_ >= patience) {
    Fail(MakeError(absl::StatusCode::kDeadlineExceeded,
                   {Reason::kDeadline, "stream",
                    absl::StrCat(writing_ ? "a client that took no frame for "
                                          : "no frame for ",
                                 absl::FormatDuration(patience)),
                    "one within the server's --stream_idle_timeout"}));
    // What the client doesn't take would keep the call, and its memory.
    if (writing_) BreakOff();
    progress_ = now;
  }
  SetAlarm();
  Continue();
}

bool StreamCall::IsBusy() const {
  return job_active_ || awaiting_memory_ || retry_at_ != absl::InfiniteFuture();
}

void StreamCall::Fail(absl::Status status) {
  if (!failure_.ok() || ended_) return;
  failure_ = std::move(status);
  *abandoned_ = true;
  held_.reset();
  outgoing_.clear();
  if (job_active_) services().scheduler->DropDead();
}

void StreamCall::Continue() {
  if (ended_) return;
  if (failure_.ok() && !awaiting_memory_) {
    LandHeldFrame();
    Compute();
    Read();
    Write();
  }
  MaybeEnd();
}

void StreamCall::MaybeEnd() {
  if (job_active_ || writing_ || awaiting_memory_) return;
  const bool finished = half_closed_ && IsLastDone() && outgoing_.empty();
  if (failure_.ok() && !finished) return;
  ended_ = true;
  if (alarm_set_) alarm_->Cancel();
  // A read may still be under way: it fails now, and OnDone waits for it.
  if (!failure_.ok()) return End(failure_);
  EndWell();
}

void StreamCall::Settle(const absl::Status& /*status*/) {
  ended_ = true;
  held_.reset();
  outgoing_.clear();
  buffers_.Clear();
  sample_.ran = IsLastDone();
}

}  // namespace convgrad
