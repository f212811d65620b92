#include "client/cpp/sessions/change_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/calls/rpc_status.h"
#include "proto/call_metadata.h"

namespace convgrad {

namespace {

// One resumes the session, one repeats committed changes, and one asks for
// snapshots.
constexpr int kRestoreThreads = 3;

// The start of the keys that number changes.
constexpr char kSessionKeys[] = "convgrad-session-";

// Returns a status for RetryPolicy that stands for `why` if a repeat may help.
absl::Status Passing(const absl::Status& why) {
  return PushbackOf(why) ? why : absl::UnavailableError(why.message());
}

// Returns the number in a trailer; -1 if the server hasn't sent it.
int64_t NumberIn(const grpc::ClientContext& context, const char* trailer) {
  int64_t number = -1;
  return absl::SimpleAtoi(TrailerOf(context, trailer).value_or(""), &number)
             ? number
             : -1;
}

bool LeavesUnknown(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsUnavailable(status) || absl::IsInternal(status) ||
         absl::IsUnknown(status);
}

}  // namespace

ChangeSender::ChangeSender(const v1::SessionResponse& opened,
                           const RetryPolicy& retries, Send send_void,
                           std::optional<Durability> durability)
    : id_(opened.session_id()),
      window_(std::max<int64_t>(1, opened.window())),
      lease_(absl::Seconds(opened.lease_seconds())),
      retries_(retries),
      send_void_(std::move(send_void)),
      durability_(std::move(durability)),
      epoch_(opened.epoch()),
      next_(opened.number() + 1),
      replay_(opened.durable_number(),
              durability_ ? durability_->replay_bytes : 0),
      void_threads_(static_cast<int>(window_)),
      restore_threads_(kRestoreThreads) {}

ChangeSender::~ChangeSender() {
  MutexLock lock(&mutex_);
  const auto is_waited_for = [](const auto& change) {
    return !change.second->void_since;
  };
  while (std::any_of(pending_.begin(), pending_.end(), is_waited_for)) {
    changed_.Wait(&mutex_);
  }
  StopLocked(absl::CancelledError("the session is gone"));
}

int64_t ChangeSender::Acknowledged() const {
  return (pending_.empty() ? next_ : pending_.begin()->first) - 1;
}

int64_t ChangeSender::number() const {
  MutexLock lock(&mutex_);
  for (const auto& [sequence, change] : pending_) {
    if (!change->is_repeat) return sequence - 1;
  }
  return next_ - 1;
}

int64_t ChangeSender::epoch() const {
  MutexLock lock(&mutex_);
  return epoch_;
}

int64_t ChangeSender::AwaitEpoch() {
  MutexLock lock(&mutex_);
  while (is_restoring_) changed_.Wait(&mutex_);
  return epoch_;
}

int64_t ChangeSender::durable_number() const {
  MutexLock lock(&mutex_);
  return replay_.durable_number();
}

absl::StatusOr<std::shared_ptr<ChangeSender::Pending>> ChangeSender::Begin(
    absl::Time deadline, Instead instead, OwnedChange owned) {
  MutexLock lock(&mutex_);
  while (stopped_.ok() && (has_ended_ || is_restoring_ || replay_.is_full() ||
                           next_ - Acknowledged() > window_)) {
    if (!changed_.WaitUntil(&mutex_, deadline)) continue;
    return DeadlinePassed(absl::StrCat("behind ", pending_.size(), " changes"));
  }
  RETURN_IF_ERROR(stopped_);
  auto change = std::make_shared<Pending>();
  change->sequence = next_++;
  change->deadline = deadline;
  change->instead = std::move(instead);
  change->owned = std::move(owned);
  change->call_id = RandomRequestId();
  pending_[change->sequence] = change;
  return change;
}

absl::StatusOr<grpc::ByteBuffer> ChangeSender::Change(absl::Time deadline,
                                                      const Send& send,
                                                      OwnedChange owned) {
  ASSIGN_OR_RETURN(const auto change,
                   Begin(deadline, nullptr, std::move(owned)));
  return Finish(change, send);
}

ChangeSender::Answer ChangeSender::SendOnce(const Send& send,
                                            grpc::ClientContext* context,
                                            int64_t restores) const {
  context->AddMetadata(kSessionKey, id_);
  Answer answer{.message = send(context), .restores = restores};
  answer.number = NumberIn(*context, kNumberTrailer);
  answer.durable_number = NumberIn(*context, kDurableNumberTrailer);
  return answer;
}

absl::StatusOr<int64_t> ChangeSender::BeginAttempt(
    const std::shared_ptr<Pending>& change, grpc::ClientContext* context) {
  MutexLock lock(&mutex_);
  while (!change->outcome && !change->is_repeat && MustWait(change->sequence)) {
    const absl::Time limit =
        change->void_since ? absl::InfiniteFuture() : change->deadline;
    if (!changed_.WaitUntil(&mutex_, limit)) continue;
    GiveUp(change);
    return DeadlinePassed("while the session was restored");
  }
  if (change->outcome) return *change->outcome;
  if (change->is_repeat) return absl::CancelledError("another thread's task");
  FillAttempt(change.get(), context);
  return restores_;
}

void ChangeSender::FillAttempt(Pending* change, grpc::ClientContext* context) {
  ++change->attempts;
  change->is_sent = true;
  change->context = context;
  context->AddMetadata(kEpochKey, absl::StrCat(epoch_));
  context->AddMetadata(kSequenceKey, absl::StrCat(change->sequence));
  context->AddMetadata(kCallIdKey, change->call_id);
  context->AddMetadata(kAcknowledgedKey, absl::StrCat(Acknowledged()));
}

absl::StatusOr<grpc::ByteBuffer> ChangeSender::Finish(
    const std::shared_ptr<Pending>& change, const Send& send) {
  auto then = Then::kAgain;
  while (then == Then::kAgain) {
    grpc::ClientContext context;
    ASSIGN_OR_RETURN(const int64_t restores, BeginAttempt(change, &context));
    Answer answer = SendOnce(send, &context, restores);
    then = Learn(change, context, answer);
    if (then == Then::kAnswer) return std::move(answer.message);
  }
  MutexLock lock(&mutex_);
  return *change->outcome;
}

ChangeSender::Next ChangeSender::Judge(const Pending& change,
                                       const Answer& answer) {
  const absl::Status& status = answer.message.status();
  if (status.ok()) return Next::kCommitted;
  const std::optional<ErrorDetail> detail = DetailOf(status);
  const Reason reason = detail ? detail->reason : Reason::kInternal;
  if (absl::IsDataLoss(status)) {
    // Committed, but the server no longer has its reply.
    if (reason != Reason::kMalformed) return Next::kCommitted;
    // The server's files are damaged: those of a snapshot, or of the session.
    return detail->field == "name" ? Next::kEpochEnded : Next::kStopped;
  }
  if (reason == Reason::kRestored) return Next::kRestored;
  if (reason == Reason::kTakenOver ||
      (absl::IsNotFound(status) && detail && detail->field == "session")) {
    return Next::kStopped;
  }
  // It was committed before its caller gave it up. The server says EPOCH_ENDED
  // if the void came too late for the epoch.
  if (change.void_since && answer.number >= change.sequence) {
    return Next::kCommitted;
  }
  if (reason == Reason::kEpochEnded) return Next::kEpochEnded;
  if (reason == Reason::kOutOfOrder) {
    if (absl::IsAborted(status) || change.void_since) return Next::kRepeat;
    // Any other field is one of the request, so only this change is wrong.
    if (absl::StartsWith(detail->field, kSessionKeys)) return Next::kStopped;
  }
  const bool is_gone =
      absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  if (answer.number >= 0 && !is_gone) return Next::kEpochEnded;
  if (LeavesUnknown(status) || PushbackOf(status)) return Next::kRepeat;
  return change.void_since ? Next::kStopped : Next::kGivenUp;
}

ChangeSender::Then ChangeSender::Learn(const std::shared_ptr<Pending>& change,
                                       const grpc::ClientContext& context,
                                       const Answer& answer) {
  const absl::Status& status = answer.message.status();
  MutexLock lock(&mutex_);
  if (change->context == &context) change->context = nullptr;
  replay_.NoteDurable(answer.durable_number);
  const bool is_current = answer.restores == restores_;
  if (change->outcome) {
    return status.ok() && is_current ? Then::kAnswer : Then::kOutcome;
  }
  if (!is_current) return Then::kAgain;
  switch (Judge(*change, answer)) {
    case Next::kCommitted:
      // The thread of a change that was given up may still look at it.
      change->outcome = change->is_repeat
                            ? absl::CancelledError("it was repeated")
                            : absl::OkStatus();
      pending_.erase(change->sequence);
      SettleVoidsBefore(change->sequence);
      KeepCommitted(*change);
      changed_.NotifyAll();
      RecoverIfSettled();
      SaveIfNeeded();
      return Then::kAnswer;
    case Next::kRestored:
      if (durability_) {
        Restore();
      } else {
        StopLocked(status);
      }
      return change->outcome ? Then::kOutcome : Then::kAgain;
    case Next::kStopped:
      StopLocked(status);
      return Then::kAnswer;
    case Next::kGivenUp:
      GiveUp(change);
      return Then::kAnswer;
    case Next::kEpochEnded:
      change->error =
          HasReason(status, Reason::kEpochEnded) ? absl::OkStatus() : status;
      change->is_over = true;
      has_ended_ = true;
      RecoverIfSettled();
      while (change->is_over && !change->outcome) changed_.Wait(&mutex_);
      break;
    case Next::kRepeat:
      break;
  }
  if (change->outcome) return Then::kOutcome;
  if (answer.restores != restores_) return Then::kAgain;
  if (std::exchange(change->goes_at_once, false)) return Then::kAgain;
  if (AwaitAttempt(*change, status)) return Then::kAgain;
  GiveUp(change);
  return Then::kAnswer;
}

bool ChangeSender::AwaitAttempt(const Pending& change,
                                const absl::Status& status) {
  const bool is_void = change.void_since.has_value();
  RetryPolicy retries = retries_;
  // The policy is for failures of a call for which a caller waits.
  if (is_void || change.is_repeat || HasReason(status, Reason::kEpochEnded)) {
    retries.max_attempts =
        std::max(retries.max_attempts, RetryPolicy().max_attempts);
  }
  const auto delay =
      retries.DelayAfter(Passing(status), is_void ? 1 : change.attempts);
  absl::Time limit = change.deadline;
  if (is_void) {
    // A durable session outlasts its lease.
    limit = durability_ ? absl::InfiniteFuture() : *change.void_since + lease_;
  }
  if (!delay) return false;
  if (absl::Now() + *delay >= limit) return false;
  const absl::Time until = SteadyNow() + *delay;
  while (!change.outcome && SteadyNow() < until) {
    changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(until - SteadyNow()));
  }
  return true;
}

}  // namespace convgrad
