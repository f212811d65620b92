// These functions are the state machine of a stream: its events, its states,
// and the actions that each state allows.
#include "server/rpc/convolutions/stream_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/steady_now.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// gRPC drops the messages of a client that has left, and reports the
// cancellation only a few thread switches later. The call waits this long for
// it.
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
  RunEvent([this, decision] {
    in_flight_.grant = false;
    if (state_ != State::kTurn) return;
    if (decision.kind == ChangeOrder::Decision::Kind::kRepeat) {
      return EndAs(decision);
    }
    EnterIf(decision.why, State::kAdmission);
  });
}

void StreamCall::OnMemory(const absl::Status& status) {
  RunEvent([this, status] {
    in_flight_.grant = false;
    if (state_ == State::kAdmission) return EnterIf(status, State::kHeader);
    if (state_ != State::kMemory) return;
    EnterIf(status.ok() ? tensors_.BindSlots(*slices_, std::move(places_),
                                             services().memory, reservation())
                        : status,
            State::kStreaming);
    if (state_ == State::kStreaming) session().AdmitNextEarly();
  });
}

void StreamCall::OnReadDone(bool ok) {
  StopAwaitingClient();
  RunEvent([this, ok] {
    sample_.times.receive.Add(*in_flight_.read, last_event_);
    in_flight_.read.reset();
    if (ok) Credit(static_cast<int64_t>(message_.Length()));
    if (state_ >= State::kFailing) return;
    ok ? OnMessage() : OnHalfClose();
  });
}

void StreamCall::OnWriteDone(bool ok) {
  RunEvent([this, ok] {
    in_flight_.write = false;
    Credit(static_cast<int64_t>(frame_.Length()));
    frame_.Clear();
    if (!ok) Fail(WhyGone());
  });
}

void StreamCall::OnGone() {
  RunEvent([this] { Fail(WhyGone()); });
}

void StreamCall::OnJobDone(int64_t slice, const JobOutcome& outcome) {
  // End runs on the worker's thread, because it adds sums, which takes time.
  if (outcome.status.ok()) tensors_.End(slice);
  RunEvent([this, outcome] { OnSliceDone(outcome); });
}

void StreamCall::OnDone() {
  RunEvent([this] { Enter(State::kDone); });
}

void StreamCall::Settle(const absl::Status& /*status*/) {
  Enter(State::kEnded);
  sample_.ran = IsLastDone();
}

void StreamCall::RunEvent(std::function<void()> event) {
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
      in_flight_.grant = true;
      return AwaitTurn(/*may_be_early=*/false);
    case State::kAdmission:
    case State::kMemory:
      in_flight_.grant = true;
      return AwaitMemory(next == State::kMemory ? NeededBytes()
                                                : kCallOverheadBytes);
    case State::kHeader:
      return SetAlarm();
    case State::kClosed:
      closed_until_ = SteadyNow() + kLeavingTime;
      // The cancelled alarm runs OnAlarm at once, which sets it again.
      return in_flight_.alarm->Cancel();
    case State::kFailing:
      *job_.cancelled = true;
      held_.reset();
      outgoing_.clear();
      if (in_flight_.job) services().scheduler->DropDead();
      return;
    case State::kEnded:
      tensors_.Clear();
      if (in_flight_.alarm) in_flight_.alarm->Cancel();
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
      if (in_flight_.alarm) return;
      strand_->Close();
      Release();
      return;
    default:
      break;
  }
  if (in_flight_.DelaysEnd()) return;
  if (state_ == State::kFailing) return End(failure_);
  const bool all_sent = IsLastDone() && outgoing_.empty();
  if (state_ == State::kDraining && all_sent) EndWell();
}

void StreamCall::SetAlarm() {
  const absl::Time now = SteadyNow();
  absl::Time due =
      (IsBusy() ? now : progress_) + services().config->stream_idle_timeout;
  // A call that failed may be past its deadline.
  if (state_ < State::kFailing) due = std::min({due, deadline(), retry_at_});
  if (state_ == State::kClosed) due = std::min(due, closed_until_);
  in_flight_.alarm.emplace();
  in_flight_.alarm->Set(
      absl::ToChronoTime(WallTime(std::max(due, now))),
      [this](bool /*ok*/) { RunEvent([this] { OnAlarm(); }); });
}

void StreamCall::OnAlarm() {
  in_flight_.alarm.reset();
  if (state_ >= State::kEnded) return;
  const absl::Time now = SteadyNow();
  if (retry_at_ <= now) retry_at_ = absl::InfiniteFuture();
  const absl::Duration patience = services().config->stream_idle_timeout;
  absl::Status over;
  if (deadline() <= now) {
    over = WhyGone();
  } else if (state_ == State::kClosed) {
    if (closed_until_ <= now) over = failure_;
  } else if (!IsBusy() && now - progress_ >= patience) {
    over = DeadlineExceeded(
        "stream",
        absl::StrCat(
            in_flight_.write ? "too little taken for " : "too little sent for ",
            absl::FormatDuration(patience)),
        "frames at the server's --min_client_rate, with no gap of its "
        "--stream_idle_timeout");
  }
  if (!over.ok()) {
    Fail(std::move(over));
    // If the client doesn't take the message, it would keep the call and its
    // memory.
    if (in_flight_.write) BreakOff();
    progress_ = now;
  }
  SetAlarm();
}

void StreamCall::PassTime() {
  const absl::Time now = SteadyNow();
  if (IsBusy()) progress_ += now - last_event_;
  last_event_ = now;
}

void StreamCall::Credit(int64_t bytes) {
  progress_ = std::min(last_event_,
                       progress_ + services().client_watch->TimeFor(bytes));
}

bool StreamCall::IsBusy() const {
  return in_flight_.job || in_flight_.grant ||
         retry_at_ != absl::InfiniteFuture();
}

}  // namespace convgrad
