#include "server/sessions/kept_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {

KeptBytes::KeptBytes(std::shared_ptr<KeptMemory> owner, Reservation reservation,
                     Buffer buffer)
    : owner_(std::move(owner)),
      id_(++owner_->last_id_),
      reservation_(std::move(reservation)),
      buffer_(std::move(buffer)) {}

KeptBytes::~KeptBytes() { owner_->used_bytes_ -= reservation_.bytes(); }

absl::Status KeptMemory::TooMuch(Reason reason, int64_t bytes,
                                 int64_t others) const {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {reason, "kept bytes",
       absl::StrCat(bytes, " beside ", others, " that sessions keep"),
       absl::StrCat("at most ", max_bytes_,
                    ", the server's --max_kept_bytes")});
}

absl::Status KeptMemory::CheckFits(int64_t bytes) const {
  if (bytes <= max_bytes_) return absl::OkStatus();
  return TooMuch(Reason::kLimitExceeded, bytes, 0);
}

absl::StatusOr<std::shared_ptr<KeptBytes>> KeptMemory::Take(int64_t size,
                                                            Reservation* paid) {
  const int64_t bytes = BufferPool::CapacityFor(size);
  RETURN_IF_ERROR(CheckFits(bytes));
  const int64_t others = used_bytes_.fetch_add(bytes);
  // Gives back what nobody took over.
  absl::Status status;
  Reservation reservation;
  Buffer buffer;
  if (others + bytes > max_bytes_) {
    status = TooMuch(Reason::kBusy, bytes, others);
  } else if (paid != nullptr && paid->bytes() >= bytes) {
    reservation = paid->SplitToKeep(bytes);
  } else {
    absl::StatusOr<Reservation> taken = memory_->budget.TryReserve(bytes);
    status = taken.status();
    if (taken.ok()) reservation = *std::move(taken);
  }
  if (status.ok()) {
    absl::StatusOr<Buffer> taken = memory_->pool.Take(size);
    status = taken.status();
    if (taken.ok()) buffer = *std::move(taken);
  }
  if (!status.ok()) {
    used_bytes_ -= bytes;
    return status;
  }
  return std::shared_ptr<KeptBytes>(new KeptBytes(
      shared_from_this(), std::move(reservation), std::move(buffer)));
}

}  // namespace convgrad
