// How many bytes the server may hold for calls: request messages, operand and
// result buffers, scratch. Taken before the bytes exist.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/memory/priority.h"
#include "server/memory/reservation.h"

namespace convgrad {

// Thread-safe.
class MemoryBudget {
 public:
  // Told once, with no lock held, by the executor (in Wait itself, if there is
  // room at once): the bytes, or kDeadlineExceeded.
  using Granted = std::function<void(absl::StatusOr<Reservation>)>;
  // Runs a task, on another thread if the one that frees bytes mustn't do a
  // waiter's work.
  using Executor = std::function<void(std::function<void()>)>;

  // At most `max_waiters` calls of each priority may wait for room.
  MemoryBudget(
      int64_t capacity_bytes, int max_waiters,
      Executor executor = [](const std::function<void()>& task) { task(); });

  // Takes `bytes` now, ahead of those that wait: who holds bytes already must
  // be able to finish.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED if they could never fit,
  // BUSY if not now.
  absl::StatusOr<Reservation> TryReserve(int64_t bytes);

  // Takes `bytes` as soon as they fit, first come first served among those of
  // `priority`, and calls `granted`; the id serves CancelWait.
  // Errors: kResourceExhausted as TryReserve, BUSY if too many wait already;
  // `granted` is then never called.
  absl::StatusOr<uint64_t> Wait(int64_t bytes, Priority priority,
                                absl::Time deadline, Granted granted);

  // Removes a waiter, whose callback is then never called. Returns false if
  // that is too late: the callback has run, runs or is about to.
  bool CancelWait(uint64_t id);

  // Ends the waiters whose deadline isn't after `now`. To be called regularly.
  void ExpireWaiters(absl::Time now);

  int64_t capacity_bytes() const { return capacity_bytes_; }
  int64_t used_bytes() const;
  int waiters() const;

 private:
  friend class Reservation;
  struct Waiter {
    uint64_t id;
    int64_t bytes;
    absl::Time deadline;
    Granted granted;
  };

  using Waiters = std::list<Waiter>;

  Waiters& WaitersOf(Priority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiters_[static_cast<size_t>(priority)];
  }
  bool NobodyWaits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiters_[0].empty() && waiters_[1].empty();
  }
  void Release(int64_t bytes);
  bool HasRoom(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the waiters that fit now, in order, out of the queue and takes their
  // bytes.
  Waiters TakeGrantable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the executor tell `waiters`.
  void Grant(Waiters waiters);
  absl::Status CheckFits(int64_t bytes) const;

  const int64_t capacity_bytes_;
  const int max_waiters_;
  const Executor executor_;
  mutable Mutex mutex_;
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::array<Waiters, kPriorities> waiters_ ABSL_GUARDED_BY(mutex_);
  PriorityTurns turns_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
