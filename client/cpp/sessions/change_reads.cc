// Implements the reads of a session.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/sessions/change_sender.h"
#include "proto/call_metadata.h"

namespace convgrad {
namespace {

// Returns whether an earlier change was given up or is being repeated.
bool IsEarly(const absl::Status& status) {
  return absl::IsAborted(status) && HasReason(status, Reason::kOutOfOrder);
}

}  // namespace

void ChangeSender::LoseReads(int64_t first, int64_t boundary) {
  for (const auto& read : reads_) {
    if (read->after < first) continue;
    if (read->after < boundary) read->is_lost = true;
    read->after -= std::min(boundary, read->after + 1) - first;
    if (read->context != nullptr) read->context->TryCancel();
  }
}

absl::StatusOr<std::shared_ptr<ChangeSender::PendingRead>>
ChangeSender::BeginRead(bool may_repeat) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(stopped_);
  auto read = std::make_shared<PendingRead>();
  read->after = next_ - 1;
  read->may_repeat = may_repeat;
  reads_.insert(read);
  return read;
}

absl::StatusOr<grpc::ByteBuffer> ChangeSender::FinishRead(
    const std::shared_ptr<PendingRead>& read, absl::Time deadline,
    const Send& send) {
  MutexLock lock(&mutex_);
  absl::StatusOr<grpc::ByteBuffer> result =
      ReadUntil(deadline, send, read.get());
  reads_.erase(read);
  if (read->is_lost && !result.ok()) {
    return EpochEnded(read->after + 1, result.status());
  }
  return result;
}

absl::StatusOr<grpc::ByteBuffer> ChangeSender::Read(absl::Time deadline,
                                                    const Send& send) {
  ASSIGN_OR_RETURN(const auto read, BeginRead());
  return FinishRead(read, deadline, send);
}

absl::StatusOr<grpc::ByteBuffer> ChangeSender::ReadUntil(absl::Time deadline,
                                                         const Send& send,
                                                         PendingRead* read) {
  for (int attempts = 1;; ++attempts) {
    while (stopped_.ok() && !read->is_lost && MustWait(read->after)) {
      if (changed_.WaitUntil(&mutex_, deadline)) {
        return DeadlinePassed("while the session was restored");
      }
    }
    RETURN_IF_ERROR(stopped_);
    if (read->is_lost) return absl::AbortedError("");
    grpc::ClientContext context;
    const int64_t after = read->after;
    const int64_t restores = restores_;
    context.AddMetadata(kAfterKey, absl::StrCat(after));
    read->context = &context;
    mutex_.Unlock();
    Answer answer = SendOnce(send, &context, restores);
    absl::Status status = answer.message.status();
    if (IsEarly(status)) status = absl::UnavailableError(status.message());
    const auto delay = retries_.DelayAfter(status, attempts);
    mutex_.Lock();
    read->context = nullptr;
    replay_.NoteDurable(answer.durable_number);
    if (status.ok() || read->is_lost ||
        (!read->may_repeat && !DetailOf(answer.message.status()))) {
      return std::move(answer.message);
    }
    RETURN_IF_ERROR(stopped_);
    if (durability_ && restores == restores_ &&
        HasReason(status, Reason::kRestored)) {
      Restore();
    }
    // Another server, or LoseReads cancelled this attempt because it must wait
    // for another change.
    if (restores != restores_ || read->after != after) continue;
    if (!delay || absl::Now() + *delay >= deadline) {
      return std::move(answer.message);
    }
    const absl::Time until = SteadyNow() + *delay;
    while (stopped_.ok() && !read->is_lost && SteadyNow() < until) {
      changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(until - SteadyNow()));
    }
    if (read->is_lost) return std::move(answer.message);
  }
}

}  // namespace convgrad
