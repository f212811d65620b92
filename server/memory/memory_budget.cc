#include "server/memory/memory_budget.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status Busy(absl::string_view found, absl::string_view expected) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kBusy, "server.memory", std::string(found),
                    std::string(expected)});
}

}  // namespace

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(bytes_, other.bytes_);
  // What this one held goes back now, not when `other` ends.
  Reservation old = std::move(other);
  return *this;
}

Reservation::~Reservation() { ShrinkTo(0); }

void Reservation::ShrinkTo(int64_t bytes) {
  assert(0 <= bytes && bytes <= bytes_);
  const int64_t freed = bytes_ - bytes;
  bytes_ = bytes;
  if (freed > 0) budget_->Release(freed);
}

Reservation Reservation::Split(int64_t bytes) {
  assert(0 <= bytes && bytes <= bytes_);
  bytes_ -= bytes;
  return Reservation(budget_, bytes);
}

void Reservation::Merge(Reservation other) {
  assert(budget_ == nullptr || other.budget_ == nullptr ||
         budget_ == other.budget_);
  if (budget_ == nullptr) budget_ = other.budget_;
  bytes_ += std::exchange(other.bytes_, 0);
}

MemoryBudget::MemoryBudget(int64_t capacity_bytes, int max_waiters,
                           Executor executor)
    : capacity_bytes_(capacity_bytes),
      max_waiters_(max_waiters),
      executor_(std::move(executor)) {}

absl::Status MemoryBudget::CheckFits(int64_t bytes) const {
  if (bytes <= capacity_bytes_) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kLimitExceeded, "server.memory",
                    absl::StrCat("a call of ", bytes, " bytes"),
                    absl::StrCat("at most ", capacity_bytes_,
                                 ", the server's memory budget for calls")});
}

bool MemoryBudget::HasRoom(int64_t bytes) const {
  return bytes <= capacity_bytes_ - used_bytes_;
}

absl::StatusOr<Reservation> MemoryBudget::TryReserve(int64_t bytes) {
  assert(bytes >= 0);
  RETURN_IF_ERROR(CheckFits(bytes));
  MutexLock lock(&mutex_);
  if (!HasRoom(bytes)) {
    return Busy(absl::StrCat(capacity_bytes_ - used_bytes_, " bytes free"),
                absl::StrCat(bytes));
  }
  used_bytes_ += bytes;
  return Reservation(this, bytes);
}

absl::StatusOr<uint64_t> MemoryBudget::Wait(int64_t bytes, Priority priority,
                                            absl::Time deadline,
                                            Granted granted) {
  assert(bytes >= 0);
  RETURN_IF_ERROR(CheckFits(bytes));
  uint64_t id;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
    if (!NobodyWaits() || !HasRoom(bytes)) {
      Waiters& waiters = WaitersOf(priority);
      if (static_cast<int>(waiters.size()) >= max_waiters_) {
        return Busy(absl::StrCat(waiters.size(), " calls waiting for memory"),
                    absl::StrCat("fewer than ", max_waiters_));
      }
      waiters.push_back({id, bytes, deadline, std::move(granted)});
      return id;
    }
    used_bytes_ += bytes;
  }
  granted(Reservation(this, bytes));
  return id;
}

bool MemoryBudget::CancelWait(uint64_t id) {
  Waiters cancelled;
  Waiters grantable;
  {
    MutexLock lock(&mutex_);
    for (Waiters& waiters : waiters_) {
      const auto found =
          std::find_if(waiters.begin(), waiters.end(),
                       [&](const Waiter& waiter) { return waiter.id == id; });
      if (found == waiters.end()) continue;
      cancelled.splice(cancelled.end(), waiters, found);
    }
    if (cancelled.empty()) return false;
    // It may have been the large one that held up smaller ones.
    grantable = TakeGrantable();
  }
  Grant(std::move(grantable));
  return true;
}

void MemoryBudget::ExpireWaiters(absl::Time now) {
  Waiters expired;
  Waiters grantable;
  {
    MutexLock lock(&mutex_);
    for (Waiters& waiters : waiters_) {
      for (auto waiter = waiters.begin(); waiter != waiters.end();) {
        const auto next = std::next(waiter);
        if (waiter->deadline <= now) {
          expired.splice(expired.end(), waiters, waiter);
        }
        waiter = next;
      }
    }
    grantable = TakeGrantable();
  }
  for (Waiter& waiter : expired) {
    waiter.granted(MakeError(absl::StatusCode::kDeadlineExceeded,
                             {Reason::kDeadline, "deadline",
                              "passed while waiting for memory", ""}));
  }
  Grant(std::move(grantable));
}

MemoryBudget::Waiters MemoryBudget::TakeGrantable() {
  Waiters grantable;
  while (!NobodyWaits()) {
    const bool batch_waits = !WaitersOf(Priority::kBatch).empty();
    const Priority next =
        turns_.Next(batch_waits, !WaitersOf(Priority::kInteractive).empty());
    Waiters& waiters = WaitersOf(next);
    if (!HasRoom(waiters.front().bytes)) break;
    turns_.Take(next, batch_waits);
    used_bytes_ += waiters.front().bytes;
    grantable.splice(grantable.end(), waiters, waiters.begin());
  }
  return grantable;
}

void MemoryBudget::Grant(Waiters waiters) {
  if (waiters.empty()) return;
  // Shared because a std::function must be copyable.
  auto shared = std::make_shared<Waiters>(std::move(waiters));
  executor_([this, shared] {
    for (Waiter& waiter : *shared) {
      waiter.granted(Reservation(this, waiter.bytes));
    }
  });
}

void MemoryBudget::Release(int64_t bytes) {
  Waiters grantable;
  {
    MutexLock lock(&mutex_);
    used_bytes_ -= bytes;
    grantable = TakeGrantable();
  }
  Grant(std::move(grantable));
}

int64_t MemoryBudget::used_bytes() const {
  MutexLock lock(&mutex_);
  return used_bytes_;
}

int MemoryBudget::waiters() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(waiters_[0].size() + waiters_[1].size());
}

}  // namespace convgrad
