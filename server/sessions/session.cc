#include "server/sessions/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {

absl::Status NoSuchSession() {
  return MakeError(absl::StatusCode::kNotFound,
                   {Reason::kNotFound, "session",
                    "none, or one that has expired or isn't the caller's",
                    "an open session of the caller's"});
}

KeptSession::KeptSession(Settings settings, ClientQuotas* quotas,
                         absl::Time now)
    : settings_(std::move(settings)),
      quotas_(quotas),
      state_(std::make_shared<const KeptState>()),
      expires_(now + settings_.lease) {}

KeptSession::~KeptSession() { End(NoSuchSession()); }

SessionInfo KeptSession::info() const {
  MutexLock lock(&mutex_);
  return {settings_.name,
          settings_.client,
          order_.epoch(),
          state_->number,
          static_cast<int64_t>(state_->tensors.size()),
          state_->quota_bytes,
          settings_.quota_bytes,
          settings_.lease,
          users_ > 0 ? absl::InfiniteFuture() : expires_};
}

int64_t KeptSession::epoch() const {
  MutexLock lock(&mutex_);
  return order_.epoch();
}

int64_t KeptSession::replies() const {
  MutexLock lock(&mutex_);
  return order_.replies();
}

std::shared_ptr<const KeptState> KeptSession::state() const {
  MutexLock lock(&mutex_);
  return state_;
}

uint64_t KeptSession::Arrive(ChangeId change, absl::Time now,
                             ChangeOrder::Caller caller) {
  ChangeOrder::Notices notices;
  uint64_t id;
  {
    MutexLock lock(&mutex_);
    id = order_.Arrive(std::move(change), now, std::move(caller), &notices);
  }
  Tell(notices);
  return id;
}

uint64_t KeptSession::AwaitNumber(int64_t number, absl::Time now,
                                  ChangeOrder::Caller caller) {
  ChangeOrder::Notices notices;
  uint64_t id;
  {
    MutexLock lock(&mutex_);
    id = order_.AwaitNumber(number, now, std::move(caller), &notices);
  }
  Tell(notices);
  return id;
}

void KeptSession::LetNextPrepare(const ChangeId& change) {
  ChangeOrder::Notices notices;
  {
    MutexLock lock(&mutex_);
    order_.LetNextPrepare(change, &notices);
  }
  Tell(notices);
}

bool KeptSession::Withdraw(uint64_t waiter) {
  MutexLock lock(&mutex_);
  return order_.Withdraw(waiter);
}

int64_t KeptSession::StartEpoch() {
  ChangeOrder::Notices notices;
  int64_t epoch;
  {
    MutexLock lock(&mutex_);
    epoch = order_.Resume(&notices);
  }
  Tell(notices);
  return epoch;
}

void KeptSession::AwaitSettled(Decided settled) {
  ChangeOrder::Notices notices;
  {
    MutexLock lock(&mutex_);
    order_.AwaitSettled(std::move(settled), &notices);
  }
  Tell(notices);
}

void KeptSession::Expire(absl::Time now) {
  ChangeOrder::Notices notices;
  {
    MutexLock lock(&mutex_);
    order_.Expire(now, &notices);
  }
  Tell(notices);
}

absl::Status KeptSession::Promise(const KeptWrites& writes) {
  MutexLock lock(&mutex_);
  if (has_ended_) return NoSuchSession();
  const int64_t bytes = After(*state_, writes).quota_bytes;
  if (bytes > settings_.quota_bytes && bytes > state_->quota_bytes) {
    return MakeError(
        absl::StatusCode::kResourceExhausted,
        {Reason::kLimitExceeded, "session",
         absl::StrCat(bytes, " bytes kept after this change"),
         absl::StrCat("at most ", settings_.quota_bytes, ", its quota")});
  }
  // The old tensors stay until the commit.
  const int64_t promised = std::max(bytes, state_->quota_bytes);
  RETURN_IF_ERROR(
      quotas_->Exchange(settings_.client, promised_bytes_, promised));
  promised_bytes_ = promised;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> KeptSession::Commit(const KeptWrites& writes,
                                            ChangeOrder::Reply reply,
                                            absl::Time now) {
  ChangeOrder::Notices notices;
  // Its tensors go where no lock is held.
  std::shared_ptr<const KeptState> old;
  int64_t number;
  {
    MutexLock lock(&mutex_);
    if (has_ended_) return NoSuchSession();
    auto after = std::make_shared<const KeptState>(After(*state_, writes));
    // Never more than was promised.
    quotas_->Exchange(settings_.client, promised_bytes_, after->quota_bytes)
        .IgnoreError();
    promised_bytes_ = after->quota_bytes;
    number = after->number;
    old = std::exchange(state_, std::move(after));
    order_.Commit(std::move(reply), now, &notices);
  }
  Tell(notices);
  return number;
}

absl::Status KeptSession::Fail(const absl::Status& why, absl::Time now) {
  ChangeOrder::Notices notices;
  absl::Status told;
  {
    MutexLock lock(&mutex_);
    if (!has_ended_) {
      quotas_->Exchange(settings_.client, promised_bytes_, state_->quota_bytes)
          .IgnoreError();
      promised_bytes_ = state_->quota_bytes;
    }
    told = order_.Fail(why, now, &notices);
  }
  Tell(notices);
  return told;
}

bool KeptSession::Enter(absl::Time now) {
  MutexLock lock(&mutex_);
  if (has_ended_ || (users_ == 0 && expires_ <= now)) return false;
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
    if (has_ended_) return true;
    if (users_ > 0 || expires_ > now) return false;
    // From now on nobody can enter.
    expires_ = absl::InfinitePast();
  }
  End(NoSuchSession());
  return true;
}

void KeptSession::End(const absl::Status& why) {
  ChangeOrder::Notices notices;
  std::shared_ptr<const KeptState> old;
  {
    MutexLock lock(&mutex_);
    if (has_ended_) return;
    has_ended_ = true;
    order_.Close(why, &notices);
    old = std::exchange(state_, std::make_shared<const KeptState>());
    quotas_->Exchange(settings_.client, promised_bytes_, 0).IgnoreError();
    promised_bytes_ = 0;
  }
  Tell(notices);
}

}  // namespace convgrad
