#include "server/sessions/change_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr char kSequence[] = "convgrad-session-sequence";

absl::Status Refusal(Reason reason, absl::string_view field,
                     absl::string_view found, absl::string_view expected) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      {reason, std::string(field), std::string(found), std::string(expected)});
}

absl::Status TooLate() {
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   {Reason::kDeadline, "deadline", "passed", ""});
}

}  // namespace

void Tell(const ChangeOrder::Notices& notices) {
  for (const auto& [decided, decision] : notices) decided(decision);
}

absl::Status ChangeOrder::CheckEpoch(int64_t epoch) const {
  if (epoch == epoch_) return absl::OkStatus();
  if (epoch > epoch_ || epoch < 1) {
    return Refusal(Reason::kOutOfOrder, "convgrad-session-epoch",
                   absl::StrCat(epoch), absl::StrCat(epoch_));
  }
  if (epoch >= first_epoch_) return EpochEnded();
  return Refusal(Reason::kTakenOver, "convgrad-session-epoch",
                 absl::StrCat(epoch),
                 absl::StrCat(epoch_,
                              ", which began when the session was "
                              "resumed"));
}

absl::Status ChangeOrder::EpochEnded() const {
  return MakeError(
      absl::StatusCode::kAborted,
      {Reason::kEpochEnded, "convgrad-session-epoch",
       absl::StrCat("one that ended with a failure: ", last_failure_),
       absl::StrCat("change ", number_ + 1, " in epoch ", epoch_)});
}

absl::Status ChangeOrder::Missing() const {
  return MakeError(absl::StatusCode::kAborted,
                   {Reason::kOutOfOrder, kSequence,
                    absl::StrCat("no change ", number_ + 1, " for ",
                                 absl::FormatDuration(kMissingTimeout)),
                    absl::StrCat(number_ + 1, " first")});
}

absl::Status ChangeOrder::Check(const ChangeId& change) const {
  RETURN_IF_ERROR(CheckEpoch(change.epoch));
  const std::string sequence = absl::StrCat(change.sequence);
  if (change.acknowledged < 0 || change.acknowledged > number_) {
    return Refusal(Reason::kOutOfOrder, "convgrad-session-acknowledged",
                   absl::StrCat(change.acknowledged),
                   absl::StrCat("at most ", number_));
  }
  if (change.sequence <= number_ || change.sequence > number_ + kWindow) {
    return Refusal(Reason::kOutOfOrder, kSequence,
                   change.sequence <= number_ && change.sequence > acknowledged_
                       ? absl::StrCat(sequence, ", committed by another call")
                       : sequence,
                   absl::StrCat(number_ + 1, " to ", number_ + kWindow));
  }
  if (number_ - std::max(acknowledged_, change.acknowledged) > kWindow) {
    return Refusal(Reason::kOutOfOrder, "convgrad-session-acknowledged",
                   absl::StrCat(change.acknowledged),
                   absl::StrCat("at least ", number_ - kWindow));
  }
  const auto waiting = waiting_.find(change.sequence);
  const bool is_taken =
      (running_ && change.sequence == number_ + 1) ||
      (waiting != waiting_.end() && waiting->second.call_id != change.call_id);
  if (!is_taken) return absl::OkStatus();
  return Refusal(Reason::kOutOfOrder, kSequence,
                 absl::StrCat(sequence, ", the number of another call"),
                 "a number of its own");
}

uint64_t ChangeOrder::Arrive(ChangeId change, absl::Time now,
                             absl::Time deadline, Decided decided,
                             Notices* notices) {
  const uint64_t id = ++last_waiter_;
  if (!closed_.ok()) {
    notices->emplace_back(std::move(decided), closed_);
    return id;
  }
  const auto committed = replies_.find(change.sequence);
  if (committed != replies_.end() &&
      committed->second.call_id == change.call_id) {
    notices->emplace_back(std::move(decided), committed->second.reply);
    return id;
  }
  Waiter waiter{id, now, deadline, std::move(decided)};
  if (running_ && change.sequence == number_ + 1 &&
      running_->call_id == change.call_id) {
    running_->waiters.push_back(std::move(waiter));
    return id;
  }
  absl::Status status = Check(change);
  if (!status.ok()) {
    notices->emplace_back(std::move(waiter.decided), std::move(status));
    return id;
  }
  Acknowledge(change.acknowledged);
  Pending& pending = waiting_[change.sequence];
  pending.epoch = change.epoch;
  pending.call_id = std::move(change.call_id);
  pending.waiters.push_back(std::move(waiter));
  Advance(notices);
  return id;
}

void ChangeOrder::Acknowledge(int64_t number) {
  acknowledged_ = std::max(acknowledged_, number);
  replies_.erase(replies_.begin(), replies_.upper_bound(acknowledged_));
}

uint64_t ChangeOrder::AwaitNumber(int64_t number, absl::Time now,
                                  absl::Time deadline, Decided decided,
                                  Notices* notices) {
  const uint64_t id = ++last_waiter_;
  if (!closed_.ok()) {
    notices->emplace_back(std::move(decided), closed_);
  } else if (number <= number_) {
    notices->emplace_back(std::move(decided), nullptr);
  } else if (number > number_ + kWindow) {
    notices->emplace_back(std::move(decided),
                          Refusal(Reason::kOutOfOrder, "convgrad-session-after",
                                  absl::StrCat(number),
                                  absl::StrCat("at most ", number_ + kWindow)));
  } else {
    readers_.push_back({number, {id, now, deadline, std::move(decided)}});
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

void ChangeOrder::Commit(Reply reply, absl::Time now, Notices* notices) {
  ++number_;
  for (Waiter& repeat : running_->waiters) {
    notices->emplace_back(std::move(repeat.decided), reply);
  }
  replies_[number_] = {std::move(running_->call_id), std::move(reply)};
  running_.reset();
  stalled_since_ = now;
  Advance(notices);
}

absl::Status ChangeOrder::Fail(const absl::Status& why, absl::Time now,
                               Notices* notices) {
  const Pending failed = *std::exchange(running_, std::nullopt);
  if (failed.epoch == epoch_) {
    last_failure_ = absl::StrCat("change ", number_ + 1, ", ",
                                 why.message().substr(0, 400));
    ++epoch_;
    RefuseWaiting(EpochEnded(), notices);
  }
  for (const Waiter& repeat : failed.waiters) {
    notices->emplace_back(repeat.decided, CheckEpoch(failed.epoch));
  }
  stalled_since_ = now;
  Advance(notices);
  return failed.epoch < first_epoch_ ? CheckEpoch(failed.epoch) : why;
}

void ChangeOrder::Advance(Notices* notices) {
  for (auto& [number, reader] : readers_) {
    if (number > number_) continue;
    notices->emplace_back(std::move(reader.decided), nullptr);
  }
  std::erase_if(readers_,
                [this](const auto& reader) { return reader.first <= number_; });
  if (running_) return;
  for (Decided& resumed : resuming_) {
    notices->emplace_back(std::move(resumed), nullptr);
  }
  resuming_.clear();
  const auto next = waiting_.find(number_ + 1);
  if (next == waiting_.end()) return;
  running_ = std::move(next->second);
  waiting_.erase(next);
  notices->emplace_back(std::move(running_->waiters.front().decided), nullptr);
  running_->waiters.erase(running_->waiters.begin());
}

int64_t ChangeOrder::Resume(Notices* notices) {
  first_epoch_ = ++epoch_;
  RefuseWaiting(CheckEpoch(epoch_ - 1), notices);
  return epoch_;
}

void ChangeOrder::AwaitSettled(Decided settled, Notices* notices) {
  if (!closed_.ok()) {
    notices->emplace_back(std::move(settled), closed_);
  } else if (running_) {
    resuming_.push_back(std::move(settled));
  } else {
    notices->emplace_back(std::move(settled), nullptr);
  }
}

void ChangeOrder::RefuseWaiting(const absl::Status& why, Notices* notices) {
  for (auto& [sequence, change] : waiting_) {
    for (Waiter& waiter : change.waiters) {
      notices->emplace_back(std::move(waiter.decided), why);
    }
  }
  waiting_.clear();
}

void ChangeOrder::Expire(absl::Time now, Notices* notices) {
  // Returns whether `waiter` is refused.
  const auto expire = [&](Waiter& waiter, bool may_be_missing) {
    const bool is_late = waiter.deadline <= now;
    const bool is_missing =
        may_be_missing && !running_ &&
        std::max(waiter.since, stalled_since_) + kMissingTimeout <= now;
    if (!is_late && !is_missing) return false;
    notices->emplace_back(std::move(waiter.decided),
                          is_late ? TooLate() : Missing());
    return true;
  };
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
    for (Waiter& repeat : running_->waiters) {
      notices->emplace_back(std::move(repeat.decided), why);
    }
    running_->waiters.clear();
  }
  for (auto& [number, reader] : readers_) {
    notices->emplace_back(std::move(reader.decided), why);
  }
  readers_.clear();
  for (Decided& resumed : resuming_) {
    notices->emplace_back(std::move(resumed), why);
  }
  resuming_.clear();
  replies_.clear();
}

}  // namespace convgrad
