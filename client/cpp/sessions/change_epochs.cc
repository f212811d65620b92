// Implements how a session's epochs end.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/sessions/change_sender.h"

namespace convgrad {

absl::Status ChangeSender::EpochEnded(int64_t sequence,
                                      const absl::Status& why) {
  return MakeError(
      absl::StatusCode::kAborted,
      {Reason::kEpochEnded, "change",
       absl::StrCat("change ", sequence, ", which came before and failed: ",
                    why.message().substr(0, 400)),
       "changes before it that succeed"});
}

void ChangeSender::GiveUp(const std::shared_ptr<Pending>& change) {
  if (change->void_since) {
    return StopLocked(absl::UnavailableError(
        "the server couldn't be reached for as long as the session's lease"));
  }
  if (change->is_repeat) {
    return StopLocked(absl::UnavailableError(absl::StrCat(
        "change ", change->sequence,
        ", which the server had committed before its restart, couldn't be "
        "repeated")));
  }
  if (change->was_committed) {
    Revive(change.get());
    return BeginRepeating();
  }
  change->void_since = absl::Now();
  change->boundary = next_;
  change->given_up_id = std::exchange(change->call_id, RandomRequestId());
  changed_.NotifyAll();
  void_threads_.Post([this, change](bool cancelled) {
    if (!cancelled) Finish(change, send_void_).IgnoreError();
  });
}

void ChangeSender::SettleVoidsBefore(int64_t sequence) {
  const auto end = pending_.lower_bound(sequence);
  for (auto entry = pending_.begin(); entry != end;) {
    Pending& change = *entry->second;
    if (!change.void_since) {
      ++entry;
      continue;
    }
    KeepCommitted(change);
    change.outcome = absl::CancelledError("it was committed");
    if (change.context != nullptr) change.context->TryCancel();
    entry = pending_.erase(entry);
  }
}

absl::Status ChangeSender::StopIn(int64_t epoch, const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (is_restoring_ || epoch_ != epoch) return absl::OkStatus();
  StopLocked(why);
  return why;
}

void ChangeSender::StopLocked(const absl::Status& why) {
  if (stopped_.ok()) stopped_ = why;
  for (auto& [sequence, change] : pending_) {
    // number() must not count changes whose outcome is unknown.
    if (!change->is_repeat) next_ = std::min(next_, sequence);
    change->outcome = stopped_;
    if (change->context != nullptr) change->context->TryCancel();
  }
  pending_.clear();
  for (const auto& read : reads_) {
    if (read->context != nullptr) read->context->TryCancel();
  }
  changed_.NotifyAll();
}

bool ChangeSender::AreSettled() const {
  bool has_failed = false;
  for (const auto& [sequence, change] : pending_) {
    has_failed |= change->is_over;
    // Behind a failure, the server can't have committed what wasn't sent.
    if (!change->is_over && (change->is_sent || !has_failed)) return false;
  }
  return true;
}

void ChangeSender::RecoverIfSettled() {
  if (!has_ended_ || !AreSettled()) return;
  has_ended_ = false;
  ++epoch_;
  changed_.NotifyAll();
  if (pending_.empty()) return;
  if (!GoesOn(pending_.begin()->second.get())) {
    if (StopsRepeats()) return;
    FailFirst();
  }
  for (auto& [sequence, change] : pending_) {
    change->is_over = false;
    change->call_id = RandomRequestId();
  }
}

bool ChangeSender::GoesOn(Pending* change) const {
  if (change->void_since) return false;
  // A committed change is repeated even after its caller was told otherwise.
  if (change->deadline <= absl::Now() && !change->was_committed) return false;
  // If the server's reason was lost, another attempt finds it out.
  const absl::Status why =
      change->error.ok() ? absl::UnavailableError("") : change->error;
  if (change->instead && change->instead(why)) {
    change->goes_at_once = true;
    return true;
  }
  return retries_.DelayAfter(why, change->attempts).has_value();
}

void ChangeSender::FailFirst() {
  const std::shared_ptr<Pending> first = pending_.begin()->second;
  absl::Status why = first->error;
  if (why.ok()) why = DeadlinePassed("before the change was repeated");
  // Changes that began after the first was given up continue.
  const int64_t shift = first->boundary == std::numeric_limits<int64_t>::max()
                            ? 0
                            : first->boundary - first->sequence;
  std::map<int64_t, std::shared_ptr<Pending>> others;
  for (auto& [sequence, change] : pending_) {
    if (sequence < first->boundary) {
      change->outcome =
          change == first ? why : EpochEnded(first->sequence, why);
      continue;
    }
    change->sequence -= shift;
    if (change->void_since) change->boundary -= shift;
    others[change->sequence] = change;
  }
  pending_ = std::move(others);
  LoseReads(first->sequence, first->boundary);
  next_ = first->sequence + std::ssize(pending_);
}

}  // namespace convgrad
