#include "server/sessions/change_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/call_metadata.h"

namespace convgrad {
namespace {

// Returns the answer to the repeat of a committed change.
ChangeOrder::Decision AnswerFor(int64_t number,
                                const ChangeOrder::Reply& reply) {
  if (reply != nullptr) return ChangeOrder::Decision::Repeat(reply);
  return ChangeOrder::Decision::Refuse(MakeError(
      absl::StatusCode::kDataLoss,
      {Reason::kNotFound, kSequenceKey,
       absl::StrCat(number, ", committed, whose reply is no longer kept"),
       absl::StrCat("a repeat within ",
                    absl::FormatDuration(ChangeOrder::kReplyLifetime))}));
}

absl::Status TooLate() { return DeadlineExceeded("deadline", "passed", ""); }

}  // namespace

bool IsBusy(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail && detail->reason == Reason::kBusy;
}

void Tell(const ChangeOrder::Notices& notices) {
  for (const auto& [decided, decision] : notices) decided(decision);
}

uint64_t ChangeOrder::Arrive(ChangeId change, absl::Time now, Caller caller,
                             Notices* notices) {
  const uint64_t id = ++last_waiter_;
  if (!closed_.ok()) {
    notices->emplace_back(std::move(caller.decided), Decision::Refuse(closed_));
    return id;
  }
  const auto committed = replies_.find(change.sequence);
  if (committed != replies_.end() &&
      committed->second.call_id == change.call_id) {
    notices->emplace_back(std::move(caller.decided),
                          AnswerFor(change.sequence, committed->second.reply));
    return id;
  }
  Waiter waiter{id, now, std::move(caller)};
  if (running_ && change.sequence == number_ + 1 &&
      running_->call_id == change.call_id) {
    running_->waiters.push_back(std::move(waiter));
    return id;
  }
  absl::Status status = Check(change);
  if (!status.ok()) {
    notices->emplace_back(std::move(waiter.caller.decided),
                          Decision::Refuse(std::move(status)));
    return id;
  }
  Acknowledge(change.acknowledged);
  Pending& pending = waiting_[change.sequence];
  pending.epoch = change.epoch;
  pending.call_id = std::move(change.call_id);
  pending.waiters.push_back(std::move(waiter));
  Advance(notices);
  TellEarlyAdmission(notices);
  return id;
}

void ChangeOrder::Acknowledge(int64_t number) {
  acknowledged_ = std::max(acknowledged_, number);
  while (!replies_.empty() && replies_.begin()->first <= acknowledged_) {
    reply_bytes_ -= replies_.begin()->second.bytes;
    replies_.erase(replies_.begin());
  }
}

uint64_t ChangeOrder::AwaitNumber(int64_t number, absl::Time now, Caller caller,
                                  Notices* notices) {
  const uint64_t id = ++last_waiter_;
  if (!closed_.ok()) {
    notices->emplace_back(std::move(caller.decided), Decision::Refuse(closed_));
  } else if (number <= number_) {
    notices->emplace_back(std::move(caller.decided), Decision::Run());
  } else if (const absl::Status ahead = CheckAhead(number); !ahead.ok()) {
    notices->emplace_back(std::move(caller.decided), Decision::Refuse(ahead));
  } else {
    readers_.push_back({number, {id, now, std::move(caller)}});
  }
  return id;
}

bool ChangeOrder::Withdraw(uint64_t waiter) {
  const auto is_it = [waiter](const Waiter& other) {
    return other.id == waiter;
  };
  for (auto change = waiting_.begin(); change != waiting_.end(); ++change) {
    std::vector<Waiter>& waiters = change->second.waiters;
    if (std::erase_if(waiters, is_it) == 0) continue;
    if (waiters.empty()) waiting_.erase(change);
    return true;
  }
  if (running_ && std::erase_if(running_->waiters, is_it) > 0) return true;
  return std::erase_if(readers_, [&](const auto& reader) {
           return is_it(reader.second);
         }) > 0;
}

void ChangeOrder::AdmitNextEarly(const ChangeId& change, Notices* notices) {
  if (!running_ || runs_alone_ || change.sequence != number_ + 1 ||
      change.epoch != running_->epoch) {
    return;
  }
  next_is_early_ = true;
  TellEarlyAdmission(notices);
}

void ChangeOrder::TellEarlyAdmission(Notices* notices) {
  const auto next = waiting_.find(number_ + 2);
  if (!next_is_early_ || next == waiting_.end()) return;
  Waiter& first = next->second.waiters.front();
  if (first.caller.admit_early == nullptr) return;
  first.is_early = true;
  notices->emplace_back(
      [admit_early = std::exchange(first.caller.admit_early, nullptr)](
          const Decision&) { admit_early(); },
      Decision::Run());
}

ChangeOrder::Pending ChangeOrder::EndRunning(absl::Time now) {
  next_is_early_ = false;
  stalled_since_ = now;
  return *std::exchange(running_, std::nullopt);
}

void ChangeOrder::Commit(Reply reply, int64_t reply_bytes, absl::Time now,
                         Notices* notices) {
  Pending committed = EndRunning(now);
  ++number_;
  runs_alone_ = false;
  Decide(std::move(committed.waiters), Decision::Repeat(reply), notices);
  reply_bytes_ += reply_bytes;
  replies_[number_] = {std::move(committed.call_id), std::move(reply),
                       reply_bytes, now};
  Advance(notices);
}

absl::Status ChangeOrder::Fail(const absl::Status& why, absl::Time now,
                               Notices* notices) {
  Pending failed = EndRunning(now);
  const absl::Status current = CheckEpoch(failed.epoch);
  if (current.ok() && IsBusy(why)) {
    PutBack(std::move(failed), why, notices);
    return why;
  }
  if (current.ok()) {
    last_failure_ = absl::StrCat("change ", number_ + 1, ", ",
                                 why.message().substr(0, 400));
    ++epochs_.newest;
    RefuseWaiting(EpochEnded(), notices);
  }
  Decide(std::move(failed.waiters), Decision::Refuse(CheckEpoch(failed.epoch)),
         notices);
  Advance(notices);
  return failed.epoch < epochs_.first ? CheckEpoch(failed.epoch) : why;
}

void ChangeOrder::PutBack(Pending change, const absl::Status& why,
                          Notices* notices) {
  runs_alone_ = true;
  // If the next change was admitted early, it holds memory that this change may
  // need.
  const auto next = waiting_.find(number_ + 2);
  if (next != waiting_.end()) {
    std::vector<Waiter>& waiters = next->second.waiters;
    if (waiters.front().is_early) {
      notices->emplace_back(std::move(waiters.front().caller.decided),
                            Decision::Refuse(why));
      waiters.erase(waiters.begin());
    }
    if (waiters.empty()) waiting_.erase(next);
  }
  if (!change.waiters.empty()) waiting_[number_ + 1] = std::move(change);
  Advance(notices);
}

void ChangeOrder::Advance(Notices* notices) {
  for (auto& [number, reader] : readers_) {
    if (number > number_) continue;
    notices->emplace_back(std::move(reader.caller.decided), Decision::Run());
  }
  std::erase_if(readers_,
                [this](const auto& reader) { return reader.first <= number_; });
  if (running_) return;
  for (Decided& resumed : resuming_) {
    notices->emplace_back(std::move(resumed), Decision::Run());
  }
  resuming_.clear();
  const auto next = waiting_.find(number_ + 1);
  if (next == waiting_.end()) return;
  running_ = std::move(next->second);
  waiting_.erase(next);
  notices->emplace_back(std::move(running_->waiters.front().caller.decided),
                        Decision::Run());
  running_->waiters.erase(running_->waiters.begin());
}

int64_t ChangeOrder::Resume(Notices* notices, std::string call_id) {
  is_restored_ = false;
  const int64_t epoch = epochs_.newest + 1;
  epochs_ = {epoch, epoch, std::move(call_id)};
  RefuseWaiting(CheckEpoch(epoch - 1), notices);
  return epoch;
}

void ChangeOrder::AwaitSettled(Decided settled, Notices* notices) {
  if (!closed_.ok()) {
    notices->emplace_back(std::move(settled), Decision::Refuse(closed_));
  } else if (running_) {
    resuming_.push_back(std::move(settled));
  } else {
    notices->emplace_back(std::move(settled), Decision::Run());
  }
}

void ChangeOrder::RefuseWaiting(const absl::Status& why, Notices* notices) {
  for (auto& [sequence, change] : waiting_) {
    Decide(std::move(change.waiters), Decision::Refuse(why), notices);
  }
  waiting_.clear();
}

void ChangeOrder::Decide(std::vector<Waiter> waiters, const Decision& decision,
                         Notices* notices) {
  for (Waiter& waiter : waiters) {
    notices->emplace_back(std::move(waiter.caller.decided), decision);
  }
}

void ChangeOrder::Expire(absl::Time now, Notices* notices) {
  // Refuses `waiter` if it has waited too long. Returns whether it was refused.
  const auto expire = [&](Waiter& waiter, bool may_be_missing) {
    const bool is_late = waiter.caller.deadline <= now;
    const bool is_missing =
        may_be_missing && !running_ &&
        std::max(waiter.since, stalled_since_) + kMissingTimeout <= now;
    if (!is_late && !is_missing) return false;
    notices->emplace_back(std::move(waiter.caller.decided),
                          Decision::Refuse(is_late ? TooLate() : Missing()));
    return true;
  };
  for (auto& [number, committed] : replies_) {
    if (committed.since + kReplyLifetime > now) break;
    reply_bytes_ -= std::exchange(committed.bytes, 0);
    committed.reply = nullptr;
  }
  for (auto& [sequence, change] : waiting_) {
    std::erase_if(change.waiters,
                  [&](Waiter& waiter) { return expire(waiter, true); });
  }
  std::erase_if(waiting_, [](const auto& change) {
    return change.second.waiters.empty();
  });
  std::erase_if(readers_,
                [&](auto& reader) { return expire(reader.second, true); });
  if (!running_) return;
  std::erase_if(running_->waiters,
                [&](Waiter& waiter) { return expire(waiter, false); });
}

void ChangeOrder::Close(const absl::Status& why, Notices* notices) {
  closed_ = why;
  RefuseWaiting(why, notices);
  if (running_) {
    Decide(std::exchange(running_->waiters, {}), Decision::Refuse(why),
           notices);
  }
  for (auto& [number, reader] : readers_) {
    notices->emplace_back(std::move(reader.caller.decided),
                          Decision::Refuse(why));
  }
  readers_.clear();
  for (Decided& resumed : resuming_) {
    notices->emplace_back(std::move(resumed), Decision::Refuse(why));
  }
  resuming_.clear();
  replies_.clear();
  reply_bytes_ = 0;
}

}  // namespace convgrad
