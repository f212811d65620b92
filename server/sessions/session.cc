#include "server/sessions/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// The approximate start of the process.
const absl::Time kStarted = absl::Now();

// A kept answer, with the booking of its bytes.
struct KeptReply {
  ChangeOrder::Reply answer;
  KeptBooking booking;
};

}  // namespace

absl::Status NoSuchSession() {
  return NotFound(
      "session", "none, or one that has expired or isn't the caller's",
      absl::StrCat("an open session of the caller's; this server has none "
                   "from before its start at ",
                   absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", kStarted,
                                    absl::UTCTimeZone())));
}

KeptSession::KeptSession(Settings settings, ClientQuotas* quotas,
                         std::shared_ptr<KeptMemory> memory, absl::Time now)
    : settings_(std::move(settings)),
      quotas_(quotas),
      memory_(std::move(memory)),
      state_(std::make_shared<const KeptState>()),
      expires_(now + settings_.lease) {}

KeptSession::~KeptSession() { End(NoSuchSession()); }

SessionInfo KeptSession::info() const {
  MutexLock lock(&mutex_);
  return {settings_.handle,
          settings_.name,
          settings_.client,
          order_.epoch(),
          state_->number,
          state_->totals.tensors,
          state_->totals.quota_bytes,
          order_.reply_bytes(),
          settings_.quota_bytes,
          settings_.lease,
          users_ > 0 ? absl::InfiniteFuture() : expires_,
          settings_.durable,
          std::max(durable_number_, int64_t{0}),
          place_ != Place::kMemory,
          snapshots_};
}

std::shared_ptr<const KeptState> KeptSession::state() const {
  MutexLock lock(&mutex_);
  return state_;
}

uint64_t KeptSession::Arrive(ChangeId change, absl::Time now,
                             ChangeOrder::Caller caller) {
  Telling telling;
  MutexLock lock(&mutex_);
  const uint64_t id = order_.Arrive(std::move(change), now, std::move(caller),
                                    &telling.notices);
  Recount().IgnoreError();
  return id;
}

uint64_t KeptSession::AwaitNumber(int64_t number, absl::Time now,
                                  ChangeOrder::Caller caller) {
  Telling telling;
  MutexLock lock(&mutex_);
  return order_.AwaitNumber(number, now, std::move(caller), &telling.notices);
}

void KeptSession::AdmitNextEarly(const ChangeId& change) {
  Telling telling;
  MutexLock lock(&mutex_);
  order_.AdmitNextEarly(change, &telling.notices);
}

bool KeptSession::Withdraw(uint64_t waiter) {
  MutexLock lock(&mutex_);
  return order_.Withdraw(waiter);
}

absl::Status KeptSession::CheckEpoch(int64_t epoch) const {
  MutexLock lock(&mutex_);
  return order_.CheckEpoch(epoch);
}

absl::StatusOr<int64_t> KeptSession::StartEpoch(int64_t held,
                                                const std::string& call_id) {
  Telling telling;
  MutexLock lock(&mutex_);
  if (held != 0) RETURN_IF_ERROR(order_.CheckHolder(held, call_id));
  return order_.Resume(&telling.notices, call_id);
}

void KeptSession::AwaitSettled(Decided settled) {
  Telling telling;
  MutexLock lock(&mutex_);
  order_.AwaitSettled(std::move(settled), &telling.notices);
}

void KeptSession::Expire(absl::Time now) {
  Telling telling;
  MutexLock lock(&mutex_);
  order_.Expire(now, &telling.notices);
  Recount().IgnoreError();
}

absl::StatusOr<int64_t> KeptSession::Commit(const KeptWrites& writes,
                                            ChangeOrder::Reply reply,
                                            absl::Time now) {
  Telling telling;
  // Declared before the lock, so that the old tensors are freed after its
  // release, and after `telling`, so that they are before the next change takes
  // memory.
  std::shared_ptr<const KeptState> old;
  std::optional<SessionCapture> unneeded;
  MutexLock lock(&mutex_);
  if (has_ended_) return NoSuchSession();
  Promised promised = std::exchange(promised_, Promised());
  KeptState after = After(*state_, writes);
  after.paid = std::move(promised.entries);
  if (settings_.durable) unneeded = NoteChange(after, now);
  const int64_t number = after.number;
  old = std::exchange(state_,
                      std::make_shared<const KeptState>(std::move(after)));
  const int64_t reply_bytes = promised.reply.bytes();
  const auto kept = std::make_shared<const KeptReply>(
      KeptReply{std::move(reply), std::move(promised.reply)});
  order_.Commit(ChangeOrder::Reply(kept, kept->answer.get()), reply_bytes, now,
                &telling.notices);
  // The count can't fail, because it is at most the promised one.
  Recount().IgnoreError();
  return number;
}

absl::Status KeptSession::Fail(const absl::Status& why, absl::Time now) {
  Telling telling;
  Promised promised;
  MutexLock lock(&mutex_);
  promised = std::exchange(promised_, Promised());
  Recount().IgnoreError();
  return order_.Fail(why, now, &telling.notices);
}

void KeptSession::DropTapes(int64_t epoch, absl::Time now) {
  std::shared_ptr<const KeptState> old;
  MutexLock lock(&mutex_);
  if (has_ended_ || order_.epoch() != epoch) return;
  if (last_resumable_ && state_->trainer_state != nullptr &&
      state_->trainer_state_number != state_->number) {
    old = GoBack(now);
  } else if (!state_->tapes.empty()) {
    KeptState after = WithoutTapes(*state_);
    after.paid = state_->paid;
    old = std::exchange(state_,
                        std::make_shared<const KeptState>(std::move(after)));
    Recount().IgnoreError();
  }
  // The epoch counts as a change, so that a save of it that fails is repeated.
  if (Capturable() != nullptr) changed_since_ = std::min(changed_since_, now);
}

bool KeptSession::IsOpenLocked(absl::Time now) const {
  return !has_ended_ && (settings_.durable || users_ > 0 || expires_ > now);
}

bool KeptSession::IsOpen(absl::Time now) const {
  MutexLock lock(&mutex_);
  return IsOpenLocked(now);
}

bool KeptSession::Enter(absl::Time now) {
  MutexLock lock(&mutex_);
  if (!IsOpenLocked(now)) return false;
  ++users_;
  return true;
}

void KeptSession::Leave(absl::Time now) {
  MutexLock lock(&mutex_);
  --users_;
  expires_ = now + settings_.lease;
}

bool KeptSession::EndIfExpired(absl::Time now) {
  {
    MutexLock lock(&mutex_);
    if (has_ended_ || settings_.durable || users_ > 0 || expires_ > now) {
      return false;
    }
    // Keeps other calls from entering.
    expires_ = absl::InfinitePast();
  }
  End(NoSuchSession());
  return true;
}

absl::Status KeptSession::EndHeld(int64_t held, const absl::Status& why) {
  ChangeOrder::Notices notices;
  Promised promised;
  std::shared_ptr<const KeptState> old;
  std::optional<SessionCapture> unneeded;
  std::vector<Ready> awaiting;
  {
    MutexLock lock(&mutex_);
    if (has_ended_) return absl::OkStatus();
    if (held != 0) RETURN_IF_ERROR(order_.CheckHolder(held));
    has_ended_ = true;
    unneeded.swap(last_resumable_);
    awaiting.swap(awaiting_);
    order_.Close(why, &notices);
    // Replies still report the session's number.
    KeptState empty;
    empty.number = state_->number;
    old = std::exchange(state_,
                        std::make_shared<const KeptState>(std::move(empty)));
    promised = std::exchange(promised_, Promised());
    quotas_->Exchange(settings_.client, counted_bytes_, 0).IgnoreError();
    counted_bytes_ = 0;
  }
  Tell(notices);
  for (const Ready& ready : awaiting) ready(why);
  return absl::OkStatus();
}

}  // namespace convgrad
