// Implements how a durable session goes on after a restart of its server.
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "client/cpp/sessions/change_sender.h"

namespace convgrad {
namespace {

absl::Status Restored(const std::string& found, const std::string& expected) {
  return FailedPrecondition(Reason::kRestored, "session", found, expected);
}

}  // namespace

bool ChangeSender::MustWait(int64_t sequence) const {
  return is_restoring_ || sequence - Acknowledged() > window_;
}

absl::Status ChangeSender::DeadlinePassed(const std::string& when) {
  return DeadlineExceeded("deadline", absl::StrCat("passed ", when), "");
}

void ChangeSender::Restore() {
  ++restores_;
  is_restoring_ = true;
  restore_threads_.Post([this](bool cancelled) {
    if (!cancelled) Resume();
  });
}

void ChangeSender::Resume() {
  const absl::StatusOr<v1::SessionResponse> answer = durability_->resume();
  MutexLock lock(&mutex_);
  is_restoring_ = false;
  changed_.NotifyAll();
  if (!stopped_.ok()) return;
  if (answer.ok()) {
    RepeatChanges(*answer);
  } else {
    StopLocked(answer.status());
  }
}

absl::Status ChangeSender::CheckKept(int64_t number) const {
  if (number >= next_) {
    return FailedPrecondition(
        Reason::kTakenOver, "session",
        absl::StrCat("change ", number, " of another client"),
        absl::StrCat("at most change ", next_ - 1,
                     ", the last that this client has sent"));
  }
  for (int64_t sequence = number + 1; sequence < next_; ++sequence) {
    if (pending_.contains(sequence) || replay_.Has(sequence)) continue;
    return Restored(
        absl::StrCat("the state after change ", number,
                     " on a server that was started again"),
        absl::StrCat("a later one: the client no longer has change ", sequence,
                     ". Resume the session by its id; its trainer_state says "
                     "where to go on"));
  }
  return absl::OkStatus();
}

void ChangeSender::RepeatChanges(const v1::SessionResponse& answer) {
  const absl::Status lost = CheckKept(answer.number());
  if (!lost.ok()) return StopLocked(lost);
  epoch_ = answer.epoch();
  has_ended_ = false;
  const int64_t newest = replay_.newest();
  for (auto& [sequence, change] : pending_) {
    change->is_over = change->is_sent = false;
    change->error = absl::OkStatus();
    change->attempts = 0;
    change->was_committed |= sequence < newest;
    if (change->void_since && change->was_committed) Revive(change.get());
  }
  for (auto& [sequence, kept] : replay_.TakeAfter(answer.number())) {
    auto change = std::make_shared<Pending>();
    change->sequence = sequence;
    change->owned = std::move(kept.change);
    change->call_id = std::move(kept.call_id);
    change->was_committed = true;
    Revive(change.get());
    pending_[sequence] = change;
  }
  BeginRepeating();
  replay_.NoteDurable(answer.durable_number());
}

void ChangeSender::Revive(Pending* change) const {
  if (change->void_since) change->call_id = change->given_up_id;
  change->void_since.reset();
  change->boundary = std::numeric_limits<int64_t>::max();
  change->is_repeat = true;
  change->is_sent = false;
  change->instead = nullptr;
  change->deadline = absl::InfiniteFuture();
  change->attempts = 0;
}

void ChangeSender::BeginRepeating() {
  changed_.NotifyAll();
  // Ends the attempt in flight, which may wait on the server for a change that
  // must be sent first.
  for (const auto& [sequence, change] : pending_) {
    if (change->is_repeat && change->context != nullptr) {
      change->context->TryCancel();
    }
  }
  if (is_repeating_ || FirstRepeat() == nullptr) return;
  is_repeating_ = true;
  restore_threads_.Post([this](bool cancelled) {
    if (!cancelled) RepeatInTurn();
  });
}

std::shared_ptr<ChangeSender::Pending> ChangeSender::FirstRepeat() const {
  for (const auto& [sequence, change] : pending_) {
    if (change->is_repeat) return change;
  }
  return nullptr;
}

void ChangeSender::RepeatInTurn() {
  MutexLock lock(&mutex_);
  // Looks for the first one each time, because a further restart of the server
  // may add earlier changes.
  while (const std::shared_ptr<Pending> change = FirstRepeat()) {
    if (MustWait(change->sequence)) {
      changed_.Wait(&mutex_);
      continue;
    }
    grpc::ClientContext context;
    FillAttempt(change.get(), &context);
    const int64_t restores = restores_;
    mutex_.Unlock();
    Learn(change, context, SendOnce(change->owned.send, &context, restores));
    mutex_.Lock();
    // The next attempt may be that of an earlier change, whose failure mustn't
    // wait for this one's outcome.
    change->is_sent = false;
  }
  is_repeating_ = false;
}

bool ChangeSender::StopsRepeats() {
  const Pending& first = *pending_.begin()->second;
  const Pending& last = *pending_.rbegin()->second;
  bool has_repeats = first.was_committed;
  for (const auto& [sequence, change] : pending_) {
    has_repeats |= change->is_repeat;
  }
  if (!has_repeats) return false;
  StopLocked(Restored(
      absl::StrCat("change ", first.sequence,
                   ", repeated after a restart of the server, failed: ",
                   first.error.message().substr(0, 400)),
      absl::StrCat("success as before: changes up to ", last.sequence,
                   " had been sent")));
  return true;
}

void ChangeSender::KeepCommitted(const Pending& change) {
  if (!durability_) return;
  replay_.Add(
      change.sequence,
      {change.owned, change.void_since ? change.given_up_id : change.call_id});
}

void ChangeSender::SaveIfNeeded() {
  if (!durability_ || !stopped_.ok() || !replay_.needs_snapshot()) return;
  replay_.BeginSaving();
  restore_threads_.Post([this](bool cancelled) {
    if (cancelled) return;
    const absl::StatusOr<int64_t> number = durability_->save();
    MutexLock lock(&mutex_);
    if (number.ok()) replay_.NoteDurable(*number);
    replay_.EndSaving(number.status());
    changed_.NotifyAll();
  });
}

}  // namespace convgrad
