// These functions of `KeptSession` move the content of a durable session
// between memory and disk.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/sessions/session.h"

namespace convgrad {
namespace {

// Returns a capture without epochs.
SessionCapture Captured(std::shared_ptr<const KeptState> state,
                        std::vector<ChangeOrder::Unacknowledged> replies,
                        absl::Time now) {
  SessionCapture capture;
  capture.state = std::move(state);
  capture.replies = std::move(replies);
  capture.taken = now;
  return capture;
}

}  // namespace

int64_t KeptSession::durable_number() const {
  MutexLock lock(&mutex_);
  return std::max(durable_number_, int64_t{0});
}

absl::Time KeptSession::changed_since() const {
  MutexLock lock(&mutex_);
  return changed_since_;
}

void KeptSession::ForgetContent(int64_t number,
                                const ChangeOrder::Epochs& epochs,
                                const KeptTotals& totals) {
  place_ = Place::kDisk;
  durable_number_ = number;
  durable_totals_ = totals;
  changed_since_ = absl::InfiniteFuture();
  KeptState state;
  state.number = number;
  state.totals = totals;
  state_ = std::make_shared<const KeptState>(std::move(state));
  // A closed order refuses a read that found the session before it left memory.
  ChangeOrder::Notices none;
  ChangeOrder order;
  order.Restore(number, epochs, {}, absl::InfinitePast());
  order.Close(NoSuchSession(), &none);
  order_ = std::move(order);
  Recount().IgnoreError();
}

void KeptSession::StayOnDisk(int64_t number, const ChangeOrder::Epochs& epochs,
                             const KeptTotals& totals) {
  MutexLock lock(&mutex_);
  durable_first_epoch_ = epochs.first;
  ForgetContent(number, epochs, totals);
}

bool KeptSession::RestIfExpired(absl::Time now) {
  Telling telling;
  // Declared before the lock, so that the tensors are freed after its release.
  std::shared_ptr<const KeptState> old;
  std::optional<SessionCapture> unneeded;
  MutexLock lock(&mutex_);
  const bool is_unused = users_ == 0 && expires_ <= now;
  if (has_ended_ || place_ != Place::kMemory || !is_unused ||
      Capturable() != nullptr) {
    return false;
  }
  old = state_;
  unneeded.swap(last_resumable_);
  order_.Close(NoSuchSession(), &telling.notices);
  ForgetContent(durable_number_, order_.epochs(), KeptTotals(durable_totals_));
  return true;
}

bool KeptSession::AwaitContent(Ready ready) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (has_ended_) {
      status = NoSuchSession();
    } else if (place_ != Place::kMemory) {
      awaiting_.push_back(std::move(ready));
      return std::exchange(place_, Place::kLoading) == Place::kDisk;
    }
  }
  ready(status);
  return false;
}

void KeptSession::Restore(const SessionCapture& content, absl::Time now) {
  std::vector<Ready> awaiting;
  {
    MutexLock lock(&mutex_);
    // A session that has ended has already failed the calls that waited.
    if (has_ended_) return;
    awaiting.swap(awaiting_);
    ChangeOrder::Epochs epochs = order_.epochs();
    epochs.newest = std::max(content.epochs.newest, epochs.newest + 1);
    order_ = ChangeOrder();
    order_.Restore(content.state->number, std::move(epochs), content.replies,
                   now);
    place_ = Place::kMemory;
    state_ = content.state;
    durable_number_ = state_->number;
    durable_totals_ = state_->totals;
    expires_ = now + settings_.lease;
    Recount().IgnoreError();
  }
  for (const Ready& ready : awaiting) ready(absl::OkStatus());
}

void KeptSession::FailToRestore(const absl::Status& why) {
  std::vector<Ready> awaiting;
  {
    MutexLock lock(&mutex_);
    if (has_ended_) return;
    awaiting.swap(awaiting_);
    place_ = Place::kDisk;
  }
  for (const Ready& ready : awaiting) ready(why);
}

std::shared_ptr<const KeptState> KeptSession::Capturable() const {
  if (!settings_.durable || has_ended_ || place_ != Place::kMemory) {
    return nullptr;
  }
  std::shared_ptr<const KeptState> newest;
  if (IsResumable(*state_)) {
    newest = state_;
  } else if (last_resumable_) {
    newest = last_resumable_->state;
  }
  if (newest == nullptr) return nullptr;
  // A server that starts again must know who has resumed the session.
  const bool is_new = newest->number > durable_number_ ||
                      order_.epochs().first > durable_first_epoch_;
  return is_new ? newest : nullptr;
}

std::optional<SessionCapture> KeptSession::NewestCapture(absl::Time now) const {
  MutexLock lock(&mutex_);
  std::shared_ptr<const KeptState> newest = Capturable();
  if (newest == nullptr) return std::nullopt;
  SessionCapture capture = newest == state_
                               ? Captured(state_, order_.unacknowledged(), now)
                               : *last_resumable_;
  capture.epochs = order_.epochs();
  return capture;
}

std::optional<SessionCapture> KeptSession::NoteChange(const KeptState& after,
                                                      absl::Time now) {
  std::optional<SessionCapture> unneeded;
  changed_since_ = std::min(changed_since_, now);
  if (IsResumable(after)) {
    unneeded.swap(last_resumable_);
  } else if (IsResumable(*state_) &&
             (after.trainer_state != nullptr || Capturable() != nullptr)) {
    unneeded = std::exchange(last_resumable_,
                             Captured(state_, order_.unacknowledged(), now));
  }
  return unneeded;
}

std::shared_ptr<const KeptState> KeptSession::GoBack(absl::Time now) {
  const SessionCapture content = *std::exchange(last_resumable_, std::nullopt);
  ChangeOrder::Notices none;
  ChangeOrder::Epochs epochs = order_.epochs();
  const std::string resumed_by = epochs.resumed_by;
  --epochs.newest;
  order_.Restore(content.state->number, std::move(epochs), content.replies,
                 now);
  order_.Resume(&none, resumed_by);
  std::shared_ptr<const KeptState> old = std::exchange(state_, content.state);
  if (state_->number <= durable_number_) {
    changed_since_ = absl::InfiniteFuture();
  }
  Recount().IgnoreError();
  return old;
}

void KeptSession::OnDurable(const SessionCapture& capture) {
  std::optional<SessionCapture> unneeded;
  MutexLock lock(&mutex_);
  durable_number_ = std::max(durable_number_, capture.state->number);
  durable_first_epoch_ = capture.epochs.first;
  durable_totals_ = capture.state->totals;
  const bool has_all =
      state_->number == durable_number_ && Capturable() == nullptr;
  changed_since_ = has_all ? absl::InfiniteFuture() : capture.taken;
  if (last_resumable_ && last_resumable_->state->number <= durable_number_ &&
      state_->trainer_state == nullptr) {
    unneeded.swap(last_resumable_);
  }
}

NamedSnapshot KeptSession::durable_snapshot() const {
  MutexLock lock(&mutex_);
  return {durable_number_, durable_totals_.quota_bytes};
}

void KeptSession::SetSnapshots(NamedSnapshots snapshots) {
  MutexLock lock(&mutex_);
  snapshots_ = std::move(snapshots);
  Recount().IgnoreError();
}

absl::Status KeptSession::AddSnapshot(const std::string& name,
                                      NamedSnapshot snapshot) {
  MutexLock lock(&mutex_);
  NamedSnapshots after = snapshots_;
  after[name] = snapshot;
  if (std::ssize(after) > kMaxNamedSnapshots) {
    return LimitExceeded(
        "name", absl::StrCat(after.size(), " snapshots with names"),
        absl::StrCat("at most ", kMaxNamedSnapshots, "; DropState drops one"));
  }
  snapshots_.swap(after);
  absl::Status counted = Recount();
  if (!counted.ok()) snapshots_.swap(after);
  return counted;
}

}  // namespace convgrad
