#include "server/memory/reservation.h"

#include <cassert>
#include <utility>

#include "backends/core/status.h"
#include "server/memory/memory_budget.h"

namespace convgrad {

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      account_(std::exchange(other.account_, nullptr)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(bytes_, other.bytes_);
  std::swap(account_, other.account_);
  // Returns this reservation's bytes now, not when `other` is destroyed.
  Reservation old = std::move(other);
  return *this;
}

Reservation::~Reservation() { ShrinkTo(0); }

void Reservation::ShrinkTo(int64_t bytes) {
  assert(0 <= bytes && bytes <= bytes_);
  const int64_t freed = bytes_ - bytes;
  bytes_ = bytes;
  if (freed > 0) budget_->GiveBack(freed, freed, account_);
  if (bytes_ == 0) account_ = nullptr;
}

Reservation Reservation::Split(int64_t bytes) {
  assert(0 <= bytes && bytes <= bytes_);
  bytes_ -= bytes;
  Reservation split(budget_, bytes, bytes > 0 ? account_ : nullptr);
  if (bytes_ == 0) account_ = nullptr;
  return split;
}

Reservation Reservation::SplitToKeep(int64_t bytes) {
  Reservation split = Split(bytes);
  if (split.account_ != nullptr) budget_->GiveBack(0, bytes, split.account_);
  split.account_ = nullptr;
  return split;
}

absl::Status Reservation::TryGrow(int64_t bytes) {
  RETURN_IF_ERROR(budget_->TryGrow(bytes, bytes_, account_));
  bytes_ += bytes;
  return absl::OkStatus();
}

}  // namespace convgrad
