// These functions of `KeptSession` make the promise of a change before it runs:
// its share of the quotas, and the memory of its bookkeeping and reply.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/sessions/session.h"

namespace convgrad {
namespace {

absl::Status CheckCount(absl::string_view what, int64_t before, int64_t after,
                        int64_t most) {
  if (after <= most || after <= before) return absl::OkStatus();
  return LimitExceeded("session",
                       absl::StrCat(after, " ", what, " after this change"),
                       absl::StrCat("at most ", most));
}

}  // namespace

absl::Status KeptSession::Recount() {
  // A session that has ended counts nothing.
  if (has_ended_) return absl::OkStatus();
  int64_t bytes =
      state_->totals.quota_bytes + order_.reply_bytes() + promised_.bytes;
  for (const auto& [name, snapshot] : snapshots_) bytes += snapshot.bytes;
  RETURN_IF_ERROR(quotas_->Exchange(settings_.client, counted_bytes_, bytes));
  counted_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status KeptSession::CheckQuota(const KeptTotals& after,
                                     int64_t reply_bytes) const {
  const int64_t quota = settings_.quota_bytes;
  const int64_t replies = order_.reply_bytes();
  const int64_t bytes = after.quota_bytes + reply_bytes;
  if (bytes + replies <= quota) return absl::OkStatus();
  if (bytes <= quota) {
    return Busy(
        "session",
        absl::StrCat(bytes, " bytes kept after this change, beside ", replies,
                     " of replies that the client hasn't acknowledged"),
        absl::StrCat("at most ", quota, ", its quota"));
  }
  return LimitExceeded("session",
                       absl::StrCat(bytes, " bytes kept after this change"),
                       absl::StrCat("at most ", quota, ", its quota"));
}

absl::Status KeptSession::TakePromised(const KeptTotals& after,
                                       const ReplySize& reply) {
  ASSIGN_OR_RETURN(promised_.reply,
                   memory_->Book(reply.payload_bytes + reply.head_bytes,
                                 reply.head_bytes, nullptr));
  ASSIGN_OR_RETURN(Reservation entries,
                   memory_->memory()->budget.TryReserve(after.entry_bytes));
  promised_.entries = std::make_shared<const Reservation>(std::move(entries));
  return absl::OkStatus();
}

absl::Status KeptSession::Promise(const KeptWrites& writes,
                                  const ReplySize& reply) {
  MutexLock lock(&mutex_);
  if (has_ended_) return NoSuchSession();
  const KeptTotals& before = state_->totals;
  const KeptTotals after = TotalsAfter(*state_, writes);
  promised_ = Promised();
  // A change that frees room must not fail for lack of room.
  const bool only_drops =
      after.quota_bytes <= before.quota_bytes && reply.payload_bytes == 0;
  const int64_t reply_bytes = reply.payload_bytes + reply.head_bytes;
  if (!only_drops) {
    RETURN_IF_ERROR(
        CheckCount("tensors", before.tensors, after.tensors, kMaxKeptTensors));
    RETURN_IF_ERROR(CheckCount("programs", before.programs, after.programs,
                               kMaxKeptPrograms));
    RETURN_IF_ERROR(
        CheckCount("tapes", before.tapes, after.tapes, kMaxKeptTapes));
    RETURN_IF_ERROR(CheckQuota(after, reply_bytes));
  }
  absl::Status taken = TakePromised(after, reply);
  if (!taken.ok() && !only_drops) return taken;
  // The old tensors count until the commit.
  promised_.bytes =
      std::max(after.quota_bytes - before.quota_bytes, int64_t{0}) +
      promised_.reply.bytes();
  absl::Status counted = Recount();
  if (!counted.ok() && only_drops) promised_.bytes = 0;
  return only_drops ? absl::OkStatus() : counted;
}

}  // namespace convgrad
