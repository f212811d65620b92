// `MemoryBudget` limits the bytes that the server holds for calls: request
// messages, operand and result buffers, scratch. A call reserves its bytes
// before they exist, and waits if they don't fit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/memory/priority.h"
#include "server/memory/reservation.h"

namespace convgrad {

// The bytes and waiting calls of one client. The budget's lock guards it.
struct ClientAccount {
  std::string client;
  int64_t bytes = 0;
  int waiters = 0;
  // Of the last pass over the queues: the bytes left for calls that wait behind
  // a call of the same client.
  uint64_t look = 0;
  int64_t allowance = 0;
};

// Thread-safe.
class MemoryBudget {
 public:
  // Receives the bytes or kDeadlineExceeded. Called once, with no lock held, by
  // the executor; by Wait itself if the bytes fit at once.
  using Granted = std::function<void(absl::StatusOr<Reservation>)>;
  // Runs a task. It uses another thread if the thread that frees bytes mustn't
  // run a waiter's code.
  using Executor = std::function<void(std::function<void()>)>;

  // Called with no lock held after bytes were taken, and before Granted.
  using Taken = std::function<void()>;

  // What a call asks for. The client "" has no share that limits it.
  struct Claim {
    int64_t bytes;
    Priority priority;
    absl::Time deadline;
    std::string client = "";
  };

  // A call passes one that waits for kSmallFactor times as many bytes or more,
  // until as many bytes have passed that one as it waits for.
  static constexpr int64_t kSmallFactor = 16;

  // At most `max_waiters` calls of each priority may wait for room. A client
  // gets no more than `client_share` of the capacity, 0 to 1, or one call of
  // any size beside half of that; and half as many of its calls may wait.
  MemoryBudget(
      int64_t capacity_bytes, int max_waiters,
      Executor executor = [](const std::function<void()>& task) { task(); },
      double client_share = 1, Taken taken = [] {});

  // Takes `bytes` now, before all waiters, because a call that already holds
  // bytes must be able to finish.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED if they could never fit,
  // BUSY if not now.
  absl::StatusOr<Reservation> TryReserve(int64_t bytes);

  // Takes the bytes as soon as they fit and the client may have them, and calls
  // `granted`. Waiters of one priority are served in order of arrival; small
  // calls pass, and clients at their share wait. Returns an id for CancelWait.
  // Errors: kResourceExhausted as TryReserve, BUSY if too many wait already;
  // `granted` is then never called.
  absl::StatusOr<uint64_t> Wait(const Claim& claim, Granted granted);

  // Removes a waiter, whose callback is then never called. Returns false if
  // that is too late: the callback has run, runs or is about to.
  bool CancelWait(uint64_t id);

  // Ends the waiters whose deadline isn't after `now`. Call it regularly.
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
    ClientAccount* account;    // null: of no client
    int64_t passed_bytes = 0;  // of those that passed it

    // Returns what one call may have that passes it.
    int64_t Allowance() const {
      return std::min(bytes / kSmallFactor, bytes - passed_bytes);
    }
  };

  using Waiters = std::list<Waiter>;

  Waiters& WaitersOf(Priority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiters_[static_cast<size_t>(priority)];
  }
  bool NobodyWaits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiters_[0].empty() && waiters_[1].empty();
  }
  void Release(int64_t bytes, ClientAccount* account);
  // Takes `bytes` out of the account; they stay taken.
  void Disown(int64_t bytes, ClientAccount* account);
  // Takes `more` for the client of `account`, of whose bytes `held` are the
  // same call's.
  absl::Status TryGrow(int64_t more, int64_t held, ClientAccount* account);
  bool HasRoom(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the account of `client`, null for "".
  ClientAccount* AccountOf(const std::string& client)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds to what is in `account`, if there is one, and forgets an empty one.
  void Book(ClientAccount* account, int64_t bytes, int waiters)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a client may have `bytes` for one call, beside `others`.
  bool MayHave(int64_t others, int64_t bytes) const;
  // Returns whether the waiter waits for calls of its own client.
  bool IsHeldBack(const Waiter& waiter) const;
  // Errors: kResourceExhausted, reason BUSY.
  absl::Status CheckQueue(const Waiters& waiters,
                          const ClientAccount* account) const;
  // Moves the waiters that fit now, in order, out of the queues and takes their
  // bytes.
  Waiters TakeGrantable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the next one. Returns false if there is none.
  bool TakeNext(Waiters* grantable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the waiter may go now, those before it having been asked
  // with the same `*allowance`; lowers it if not.
  bool MayGo(const Waiter& waiter, int64_t* allowance)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the priority that is served next.
  Priority NextTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the executor tell `waiters`.
  void Grant(Waiters waiters);
  absl::Status CheckFits(int64_t bytes) const;

  const int64_t capacity_bytes_;
  const int max_waiters_;
  const int64_t client_bytes_;
  const Executor executor_;
  const Taken taken_;
  mutable Mutex mutex_;
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::array<Waiters, kPriorities> waiters_ ABSL_GUARDED_BY(mutex_);
  // Of clients that have or wait for something.
  std::map<std::string, ClientAccount> accounts_ ABSL_GUARDED_BY(mutex_);
  uint64_t looks_ ABSL_GUARDED_BY(mutex_) = 0;
  PriorityTurns turns_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
