// These functions of `ChangeOrder` check a change, and make the errors that
// refuse it.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/call_metadata.h"
#include "server/sessions/change_order.h"

namespace convgrad {

absl::Status ChangeOrder::CheckEpoch(int64_t epoch) const {
  if (epoch == this->epoch()) return absl::OkStatus();
  if (epoch > this->epoch() || epoch < 1) {
    return FailedPrecondition(Reason::kOutOfOrder, kEpochKey, epoch,
                              this->epoch());
  }
  RETURN_IF_ERROR(CheckHolder(epoch));
  if (!is_restored_) return EpochEnded();
  return FailedPrecondition(
      Reason::kRestored, kEpochKey, epoch,
      absl::StrCat("one that ResumeSession starts: the session was restored "
                   "after change ",
                   number_));
}

absl::Status ChangeOrder::CheckHolder(int64_t epoch,
                                      const std::string& call_id) const {
  const bool is_mine = !call_id.empty() && call_id == epochs_.resumed_by;
  if (is_mine || epoch >= epochs_.first) return absl::OkStatus();
  return FailedPrecondition(
      Reason::kTakenOver, kEpochKey, epoch,
      absl::StrCat("at least ", epochs_.first,
                   ", which began when the session was resumed"));
}

absl::Status ChangeOrder::EpochEnded() const {
  return MakeError(
      absl::StatusCode::kAborted,
      {Reason::kEpochEnded, kEpochKey,
       absl::StrCat("one that ended with a failure: ", last_failure_),
       absl::StrCat("change ", number_ + 1, " in epoch ", epoch())});
}

absl::Status ChangeOrder::Missing() const {
  return MakeError(absl::StatusCode::kAborted,
                   {Reason::kOutOfOrder, kSequenceKey,
                    absl::StrCat("no change ", number_ + 1, " for ",
                                 absl::FormatDuration(kMissingTimeout)),
                    absl::StrCat(number_ + 1, " first")});
}

absl::Status ChangeOrder::CheckAhead(int64_t number) const {
  if (is_restored_) {
    return FailedPrecondition(
        Reason::kRestored, kAfterKey, number,
        absl::StrCat("at most ", number_,
                     ", the change after which the session was "
                     "restored, until ResumeSession"));
  }
  if (number <= number_ + kWindow) return absl::OkStatus();
  return FailedPrecondition(Reason::kOutOfOrder, kAfterKey, number,
                            absl::StrCat("at most ", number_ + kWindow));
}

absl::Status ChangeOrder::Check(const ChangeId& change) const {
  RETURN_IF_ERROR(CheckEpoch(change.epoch));
  const std::string sequence = absl::StrCat(change.sequence);
  if (change.acknowledged < 0 || change.acknowledged > number_) {
    return FailedPrecondition(Reason::kOutOfOrder, kAcknowledgedKey,
                              change.acknowledged,
                              absl::StrCat("at most ", number_));
  }
  if (change.sequence <= number_ || change.sequence > number_ + kWindow) {
    return FailedPrecondition(
        Reason::kOutOfOrder, kSequenceKey,
        change.sequence <= number_ && change.sequence > acknowledged_
            ? absl::StrCat(sequence, ", committed by another call")
            : sequence,
        absl::StrCat(number_ + 1, " to ", number_ + kWindow));
  }
  if (number_ - std::max(acknowledged_, change.acknowledged) > kWindow) {
    return FailedPrecondition(Reason::kOutOfOrder, kAcknowledgedKey,
                              change.acknowledged,
                              absl::StrCat("at least ", number_ - kWindow));
  }
  const auto waiting = waiting_.find(change.sequence);
  const bool is_taken =
      (running_ && change.sequence == number_ + 1) ||
      (waiting != waiting_.end() && waiting->second.call_id != change.call_id);
  if (!is_taken) return absl::OkStatus();
  return FailedPrecondition(
      Reason::kOutOfOrder, kSequenceKey,
      absl::StrCat(sequence, ", the number of another call"),
      "a number of its own");
}

}  // namespace convgrad
