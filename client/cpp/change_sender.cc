#include "client/cpp/change_sender.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/call_parts.h"
#include "proto/call_metadata.h"

namespace convgrad {
namespace {

// Stands for `why` where a repeat may help.
absl::Status Passing(const absl::Status& why) {
  return absl::UnavailableError(why.message());
}

}  // namespace

ChangeSender::Answer ChangeSender::SendOnce(
    const Send& send, grpc::ClientContext* context) const {
  context->AddMetadata(kSessionKey, id_);
  Answer answer{send(context)};
  const auto& trailers = context->GetServerTrailingMetadata();
  const auto found = trailers.find(kNumberTrailer);
  if (found == trailers.end() ||
      !absl::SimpleAtoi(
          absl::string_view(found->second.data(), found->second.size()),
          &answer.number)) {
    answer.number = -1;
  }
  return answer;
}

absl::Status ChangeSender::Learn(const Answer& answer) {
  const absl::Status& status = answer.message.status();
  if (status.ok()) {
    ++number_;
    is_unsettled_ = false;
    return status;
  }
  const std::optional<ErrorDetail> detail = DetailOf(status);
  // Nobody knows what became of it, unless a server has refused to hear it.
  if (answer.number < 0 && detail) return status;
  const bool was_unsettled = std::exchange(is_unsettled_, true);
  if (answer.number < 0) return Passing(status);
  const Reason reason = detail ? detail->reason : Reason::kInternal;
  if (reason == Reason::kTakenOver) taken_over_ = status;
  if (reason == Reason::kEpochEnded) {
    // By the change before, or by this one's lost connection: nothing of this
    // one has taken effect.
    ++epoch_;
    return Passing(status);
  }
  if (reason != Reason::kOutOfOrder || !was_unsettled) return status;
  // The change before still runs, or was committed in the end.
  number_ = answer.number;
  return Passing(status);
}

absl::StatusOr<grpc::ByteBuffer> ChangeSender::Change(absl::Time deadline,
                                                      const Send& send) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(taken_over_);
  const std::string call_id = RandomRequestId();
  for (int attempts = 1;; ++attempts) {
    grpc::ClientContext context;
    const std::string number = absl::StrCat(number_.load());
    context.AddMetadata(kEpochKey, absl::StrCat(epoch_));
    context.AddMetadata(kSequenceKey, absl::StrCat(number_ + 1));
    context.AddMetadata(kCallIdKey, call_id);
    context.AddMetadata(kAcknowledgedKey, number);
    Answer answer = SendOnce(send, &context);
    const absl::Status status = Learn(answer);
    if (status.ok()) return std::move(answer.message);
    const auto delay = retries_.DelayAfter(status, attempts);
    if (!delay || absl::Now() + *delay >= deadline) return answer.message;
    absl::SleepFor(*delay);
  }
}

absl::StatusOr<grpc::ByteBuffer> ChangeSender::Read(absl::Time deadline,
                                                    const Send& send) {
  for (int attempts = 1;; ++attempts) {
    grpc::ClientContext context;
    context.AddMetadata(kAfterKey, absl::StrCat(number_.load()));
    Answer answer = SendOnce(send, &context);
    if (answer.message.ok()) return std::move(answer.message);
    const auto delay = retries_.DelayAfter(answer.message.status(), attempts);
    if (!delay || absl::Now() + *delay >= deadline) return answer.message;
    absl::SleepFor(*delay);
  }
}

}  // namespace convgrad
