// Implements how a session's epochs end, and the consequences for reads.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/call_parts.h"
#include "client/cpp/sessions/change_sender.h"
#include "proto/call_metadata.h"

namespace convgrad {
namespace {

absl::Status EpochEnded(int64_t sequence, const absl::Status& why) {
  return MakeError(
      absl::StatusCode::kAborted,
      {Reason::kEpochEnded, "change",
       absl::StrCat("change ", sequence, ", which came before and failed: ",
                    why.message().substr(0, 400)),
       "changes before it that succeed"});
}

// Returns whether an earlier change was given up or is being repeated.
bool IsEarly(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = DetailOf(status);
  return absl::IsAborted(status) && detail &&
         detail->reason == Reason::kOutOfOrder;
}

}  // namespace

void ChangeSender::GiveUp(const std::shared_ptr<Pending>& change) {
  if (change->void_since) {
    return StopLocked(absl::UnavailableError(
        "the server couldn't be reached for as long as the session's lease"));
  }
  change->void_since = absl::Now();
  change->boundary = next_;
  change->call_id = RandomRequestId();
  changed_.NotifyAll();
  void_threads_.Post([this, change](bool cancelled) {
    if (!cancelled) Finish(change, send_void_).IgnoreError();
  });
}

void ChangeSender::SettleVoidsBefore(int64_t sequence) {
  std::erase_if(pending_, [sequence](const auto& entry) {
    Pending& change = *entry.second;
    if (entry.first >= sequence || !change.void_since) return false;
    change.outcome = absl::CancelledError("it was committed");
    if (change.context != nullptr) change.context->TryCancel();
    return true;
  });
}

void ChangeSender::Stop(const absl::Status& why) {
  MutexLock lock(&mutex_);
  StopLocked(why);
}

void ChangeSender::StopLocked(const absl::Status& why) {
  if (stopped_.ok()) stopped_ = why;
  for (auto& [sequence, change] : pending_) {
    change->outcome = stopped_;
    if (change->context != nullptr) change->context->TryCancel();
  }
  pending_.clear();
  changed_.NotifyAll();
}

void ChangeSender::RecoverIfSettled() {
  const auto is_over = [](const auto& change) {
    return change.second->is_over;
  };
  if (!has_ended_ || !std::all_of(pending_.begin(), pending_.end(), is_over)) {
    return;
  }
  has_ended_ = false;
  ++epoch_;
  changed_.NotifyAll();
  if (pending_.empty()) return;
  if (!GoesOn(pending_.begin()->second.get())) FailFirst();
  for (auto& [sequence, change] : pending_) {
    change->is_over = false;
    change->call_id = RandomRequestId();
  }
}

bool ChangeSender::GoesOn(Pending* change) const {
  if (change->void_since || change->deadline <= absl::Now()) return false;
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
  if (why.ok()) {
    why = MakeError(absl::StatusCode::kDeadlineExceeded,
                    {Reason::kDeadline, "deadline",
                     "passed before the change was repeated", ""});
  }
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

void ChangeSender::LoseReads(int64_t first, int64_t boundary) {
  for (ReadUnderWay* read : reads_) {
    if (read->after < first) continue;
    if (read->after < boundary) read->is_lost = true;
    read->after -= std::min(boundary, read->after + 1) - first;
    if (read->context != nullptr) read->context->TryCancel();
  }
}

absl::StatusOr<grpc::ByteBuffer> ChangeSender::Read(absl::Time deadline,
                                                    const Send& send) {
  ReadUnderWay read;
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(stopped_);
  read.after = next_ - 1;
  reads_.insert(&read);
  absl::StatusOr<grpc::ByteBuffer> result = absl::UnknownError("");
  for (int attempts = 1;; ++attempts) {
    grpc::ClientContext context;
    const int64_t after = read.after;
    context.AddMetadata(kAfterKey, absl::StrCat(after));
    read.context = &context;
    mutex_.Unlock();
    Answer answer = SendOnce(send, &context);
    absl::Status status = answer.message.status();
    if (IsEarly(status)) status = absl::UnavailableError(status.message());
    const auto delay = retries_.DelayAfter(status, attempts);
    mutex_.Lock();
    read.context = nullptr;
    result = std::move(answer.message);
    if (result.ok() || read.is_lost) break;
    // LoseReads cancelled this attempt because it must wait for another change.
    if (read.after != after) continue;
    if (!delay || absl::Now() + *delay >= deadline) break;
    const absl::Time until = absl::Now() + *delay;
    while (!read.is_lost && !changed_.WaitUntil(&mutex_, until)) {
    }
    if (read.is_lost) break;
  }
  reads_.erase(&read);
  if (read.is_lost && !result.ok()) {
    return EpochEnded(read.after + 1, result.status());
  }
  return result;
}

}  // namespace convgrad
