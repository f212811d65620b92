#include "server/sessions/kept_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace convgrad {

KeptBooking& KeptBooking::operator=(KeptBooking&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(bytes_, other.bytes_);
  std::swap(reservation_, other.reservation_);
  return *this;
}

KeptBooking::~KeptBooking() {
  if (owner_ != nullptr) owner_->used_bytes_ -= bytes_;
}

KeptBytes::KeptBytes(uint64_t id, KeptBooking booking, Buffer buffer)
    : id_(id), booking_(std::move(booking)), buffer_(std::move(buffer)) {}

absl::Status KeptMemory::TooMuch(Reason reason, int64_t bytes,
                                 int64_t others) const {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {reason, "kept bytes",
                    bytes > 0 ? absl::StrCat(bytes, " beside ", others,
                                             " that sessions keep")
                              : absl::StrCat(others, " that sessions keep"),
                    absl::StrCat("at most ", max_bytes(),
                                 ", the server's --max_kept_bytes")});
}

absl::Status KeptMemory::CheckFits(int64_t bytes) const {
  if (bytes <= max_bytes_) return absl::OkStatus();
  return TooMuch(Reason::kLimitExceeded, bytes, 0);
}

absl::Status KeptMemory::CheckRoom() const {
  const int64_t used = used_bytes_;
  if (used <= max_bytes_) return absl::OkStatus();
  return TooMuch(Reason::kBusy, 0, used);
}

absl::StatusOr<KeptBooking> KeptMemory::Book(int64_t bytes, int64_t unpaid,
                                             Reservation* paid) {
  RETURN_IF_ERROR(CheckFits(bytes));
  int64_t others = used_bytes_;
  do {
    if (others + bytes > max_bytes_) {
      return TooMuch(Reason::kBusy, bytes, others);
    }
  } while (!used_bytes_.compare_exchange_weak(others, others + bytes));
  // Its destructor undoes the count if the function fails.
  KeptBooking booking;
  booking.owner_ = shared_from_this();
  booking.bytes_ = bytes;
  if (paid != nullptr && paid->bytes() >= unpaid) {
    booking.reservation_ = paid->SplitToKeep(unpaid);
  } else {
    ASSIGN_OR_RETURN(booking.reservation_, memory_->budget.TryReserve(unpaid));
  }
  return booking;
}

absl::StatusOr<std::shared_ptr<KeptBytes>> KeptMemory::Take(int64_t size,
                                                            Reservation* paid) {
  const int64_t bytes = BufferPool::CapacityFor(size);
  ASSIGN_OR_RETURN(KeptBooking booking, Book(bytes, bytes, paid));
  ASSIGN_OR_RETURN(Buffer buffer, memory_->pool.Take(size));
  return std::shared_ptr<KeptBytes>(
      new KeptBytes(++last_id_, std::move(booking), std::move(buffer)));
}

}  // namespace convgrad
