// The machine of a stream: its events, its states, and what can be done next.
#include "server/rpc/convolutions/stream_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// gRPC knows of a client that has left when it drops what that one sent; the
// call is told after a thread's switch or two.
constexpr absl::Duration kLeavingTime = absl::Milliseconds(250);

}  // namespace

StreamCall::StreamCall(const Method& method, const CallServices& services,
                       grpc::GenericCallbackServerContext* context,
                       Direction direction)
    : Call(method, services, context),
      direction_(direction),
      strand_(std::make_shared<Strand>()),
      progress_(arrival()),
      last_event_(arrival()) {
  job_.cancelled = std::make_shared<std::atomic<bool>>(false);
  total_.plan_cache_hit = true;
}

void StreamCall::Start() { Enter(State::kTurn); }

void StreamCall::OnTurn(const ChangeOrder::Decision& decision) {
  Step([this, decision] {
    under_way_.grant = false;
    if (state_ != State::kTurn) return;
    if (decision.kind == ChangeOrder::Decision::Kind::kRepeat) {
      return EndAs(decision);
    }
    EnterIf(decision.why, State::kAdmission);
  });
}

void StreamCall::OnMemory(const absl::Status& status) {
  Step([this, status] {
    under_way_.grant = false;
    if (state_ == State::kAdmission) return EnterIf(status, State::kHeader);
    if (state_ != State::kMemory) return;
    EnterIf(status.ok() ? tensors_.BindSlots(*slices_, std::move(places_),
                                             services().memory, reservation())
                        : status,
            State::kStreaming);
    if (state_ == State::kStreaming && session().is_change()) {
      session().LetNextPrepare();
    }
  });
}

void StreamCall::OnReadDone(bool ok) {
  SettleMessage();
  Step([this, ok] {
    sample_.times.receive.Add(*under_way_.read, last_event_);
    under_way_.read.reset();
    if (ok) Credit(static_cast<int64_t>(message_.Length()));
    if (state_ >= State::kFailing) return;
    ok ? OnMessage() : OnHalfClose();
  });
}

void StreamCall::OnWriteDone(bool ok) {
  Step([this, ok] {
    under_way_.write = false;
    Credit(static_cast<int64_t>(frame_.Length()));
    frame_.Clear();
    if (!ok) Fail(WhyGone());
  });
}

void StreamCall::OnGone() {
  Step([this] { Fail(WhyGone()); });
}

void StreamCall::OnJobDone(int64_t slice, const JobOutcome& outcome) {
  // This is still the worker's thread: adding sums up is work.
  if (outcome.status.ok()) tensors_.End(slice);
  Step([this, outcome] { OnSliceDone(outcome); });
}

void StreamCall::OnDone() {
  Step([this] { Enter(State::kDone); });
}

void StreamCall::Settle(const absl::Status& /*status*/) {
  Enter(State::kEnded);
  sample_.ran = IsLastDone();
}

void StreamCall::Step(std::function<void()> event) {
  HandOver();
  strand_->Run([this, event = std::move(event)] {
    PassTime();
    event();
    Continue();
  });
}

void StreamCall::Enter(State next) {
  state_ = next;
  switch (next) {
    case State::kTurn:
      under_way_.grant = true;
      return AwaitTurn(/*prepares=*/false);
    case State::kAdmission:
    case State::kMemory:
      under_way_.grant = true;
      return AwaitMemory(next == State::kMemory ? NeededBytes()
                                                : kCallOverheadBytes);
    case State::kHeader:
      return SetAlarm();
    case State::kClosed:
      closed_until_ = absl::Now() + kLeavingTime;
      // It comes back at once, and is set anew.
      return under_way_.alarm->Cancel();
    case State::kFailing:
      *job_.cancelled = true;
      held_.reset();
      outgoing_.clear();
      if (under_way_.job) services().scheduler->DropDead();
      return;
    case State::kEnded:
      tensors_.Clear();
      if (under_way_.alarm) under_way_.alarm->Cancel();
      return;
    default:
      return;
  }
}

void StreamCall::EnterIf(absl::Status status, State next) {
  if (!status.ok()) return Fail(std::move(status));
  Enter(next);
}

void StreamCall::Fail(absl::Status status) {
  if (state_ >= State::kFailing) return;
  failure_ = std::move(status);
  Enter(State::kFailing);
}

void StreamCall::Continue() {
  switch (state_) {
    case State::kHeader:
      return Read();
    case State::kStreaming:
      LandHeldFrame();
      Compute();
      Read();
      Write();
      break;
    case State::kDraining:
      Compute();
      Write();
      break;
    case State::kDone:
      if (under_way_.alarm) return;
      strand_->Close();
      Release();
      return;
    default:
      break;
  }
  if (under_way_.DelaysEnd()) return;
  if (state_ == State::kFailing) return End(failure_);
  const bool all_sent = IsLastDone() && outgoing_.empty();
  if (state_ == State::kDraining && all_sent) EndWell();
}

void StreamCall::SetAlarm() {
  const absl::Time now = absl::Now();
  absl::Time due =
      (IsBusy() ? now : progress_) + services().stream_idle_timeout;
  // A call that failed may be past its deadline already.
  if (state_ < State::kFailing) due = std::min({due, deadline(), retry_at_});
  if (state_ == State::kClosed) due = std::min(due, closed_until_);
  under_way_.alarm.emplace();
  under_way_.alarm->Set(absl::ToChronoTime(std::max(due, now)),
                        [this](bool /*ok*/) { Step([this] { OnAlarm(); }); });
}

void StreamCall::OnAlarm() {
  under_way_.alarm.reset();
  if (state_ >= State::kEnded) return;
  const absl::Time now = absl::Now();
  if (retry_at_ <= now) retry_at_ = absl::InfiniteFuture();
  const absl::Duration patience = services().stream_idle_timeout;
  absl::Status over;
  if (deadline() <= now) {
    over = WhyGone();
  } else if (state_ == State::kClosed) {
    if (closed_until_ <= now) over = failure_;
  } else if (!IsBusy() && now - progress_ >= patience) {
    over = MakeError(
        absl::StatusCode::kDeadlineExceeded,
        {Reason::kDeadline, "stream",
         absl::StrCat(under_way_.write ? "too little taken for "
                                       : "too little sent for ",
                      absl::FormatDuration(patience)),
         "frames at the server's --min_client_rate, with no gap of its "
         "--stream_idle_timeout"});
  }
  if (!over.ok()) {
    Fail(std::move(over));
    // What the client doesn't take would keep the call, and its memory.
    if (under_way_.write) BreakOff();
    progress_ = now;
  }
  SetAlarm();
}

void StreamCall::PassTime() {
  const absl::Time now = absl::Now();
  if (IsBusy()) progress_ += now - last_event_;
  last_event_ = now;
}

void StreamCall::Credit(int64_t bytes) {
  progress_ = std::min(last_event_,
                       progress_ + services().client_watch->TimeFor(bytes));
}

bool StreamCall::IsBusy() const {
  return under_way_.job || under_way_.grant ||
         retry_at_ != absl::InfiniteFuture();
}

}  // namespace convgrad
