// `MemoryBudget` limits the bytes that the server holds for calls: request
// messages, operand and result buffers, scratch. A call reserves its bytes
// before they exist, and waits if they don't fit.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
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
  // The bytes left, in pass `look` over the queues, for calls that wait behind
  // a call of the same client.
  uint64_t look = 0;
  int64_t allowance = 0;
};

// `MemoryBudget` is thread-safe.
class MemoryBudget {
 public:
  // Receives the bytes or kDeadlineExceeded. The executor calls it once, with
  // no lock held; Wait calls it if the bytes fit at once.
  using Granted = std::function<void(absl::StatusOr<Reservation>)>;
  // Runs a task. It uses another thread if the thread that frees bytes must not
  // run a waiter's code.
  using Executor = std::function<void(std::function<void()>)>;

  // Called with no lock held after bytes were taken, before Granted.
  using Taken = std::function<void()>;

  // A request for bytes. The client "" has no share that limits it.
  struct Claim {
    int64_t bytes;
    Priority priority;
    absl::Time deadline;
    std::string client = "";
  };

  // The client for whose job a worker takes bytes, and the bytes that the job's
  // call holds. The client "" has no share that limits it. A job that has begun
  // may exceed the share, because its work would be lost.
  struct Holder {
    std::string client = "";
    int64_t held_bytes = 0;
    bool has_begun = false;
  };

  // A call may pass a waiting call that asks for at least kSmallFactor times as
  // many bytes. This ends when the calls that passed have as many bytes as the
  // waiting call asks for.
  static constexpr int64_t kSmallFactor = 16;

  // At most `max_waiters` calls of each priority may wait, half of them from
  // one client. A client gets at most `client_share` (0 to 1) of the capacity.
  // One call of any size is possible if the client's other calls hold at most
  // half of that share.
  MemoryBudget(
      int64_t capacity_bytes, int max_waiters,
      Executor executor = [](const std::function<void()>& task) { task(); },
      double client_share = 1, Taken taken = [] {});

  // Takes `bytes` now, before all waiters, because a call that already holds
  // bytes must be able to finish. They count in the client's share, and may
  // exceed it while no other client waits for memory.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED if the bytes never fit,
  // BUSY if they don't fit now.
  absl::StatusOr<Reservation> TryReserve(int64_t bytes) {
    return TryReserve(bytes, Holder());
  }
  absl::StatusOr<Reservation> TryReserve(int64_t bytes, const Holder& holder);

  // Takes the bytes as soon as they fit and the client's share allows them, and
  // calls `granted`. Waiters of one priority are served in order of arrival;
  // small calls pass large ones, and clients at their share wait. Returns an id
  // for CancelWait.
  // Errors: kResourceExhausted as TryReserve, and BUSY if too many calls wait.
  // After an error, `granted` is never called.
  absl::StatusOr<uint64_t> Wait(const Claim& claim, Granted granted);

  // Removes a waiter; its callback is then never called. Returns false if it is
  // too late: the callback has run, runs or is about to run.
  bool CancelWait(uint64_t id);

  // Ends the waiters whose deadline isn't after `now`. Call it regularly.
  void ExpireWaiters(absl::Time now);

  // Changes the capacity. Above it, taken bytes stay taken. Refuses the waiters
  // that ask for more than the capacity, and serves those that fit now.
  void SetCapacity(int64_t bytes);

  int64_t capacity_bytes() const { return capacity_bytes_; }
  int64_t used_bytes() const {
    MutexLock lock(&mutex_);
    return used_bytes_;
  }
  int waiters() const {
    MutexLock lock(&mutex_);
    return static_cast<int>(waiters_[0].size() + waiters_[1].size());
  }

 private:
  friend class Reservation;
  struct Waiter {
    uint64_t id;
    int64_t bytes;
    absl::Time deadline;
    Granted granted;
    ClientAccount* account;    // Null: the call has no client.
    int64_t passed_bytes = 0;  // Bytes of the calls that passed it.

    // Returns the most bytes of a call that may pass this one.
    int64_t Allowance() const {
      return std::min(bytes / kSmallFactor, bytes - passed_bytes);
    }
  };

  using Waiters = std::list<Waiter>;

  bool NobodyWaits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiters_[0].empty() && waiters_[1].empty();
  }
  // Gives `free` bytes back to the budget and removes `owned` from the account.
  void GiveBack(int64_t free, int64_t owned, ClientAccount* account);
  // Takes `more` bytes for the client of `account`. The same call holds `held`
  // bytes of the account.
  absl::Status TryGrow(int64_t more, int64_t held, ClientAccount* account);
  bool HasRoom(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return bytes <= std::max<int64_t>(capacity_bytes_ - used_bytes_, 0);
  }
  // Takes bytes as TryGrow does, beyond the client's share if `may_exceed`.
  // Errors: kResourceExhausted, reason BUSY.
  absl::Status Take(int64_t more, int64_t held, ClientAccount* account,
                    bool may_exceed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a call of another client waits for the memory of others.
  bool OthersWait(const ClientAccount* account) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the account of `client`; null for "" or if no share limits clients.
  ClientAccount* AccountOf(const std::string& client)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds to `account`, if it isn't null, and removes an empty account.
  void Book(ClientAccount* account, int64_t bytes, int waiters)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a client whose other calls hold `others` may have `bytes`
  // for one call.
  bool MayHave(int64_t others, int64_t bytes) const {
    return others <= client_bytes() / 2 || others + bytes <= client_bytes();
  }
  // Returns whether the waiter waits for calls of its own client.
  bool IsHeldBack(const Waiter& waiter) const {
    return waiter.account != nullptr &&
           !MayHave(waiter.account->bytes, waiter.bytes);
  }
  // Checks the number of waiting calls.
  // Errors: kResourceExhausted, reason BUSY.
  absl::Status CheckQueue(const Waiters& waiters,
                          const ClientAccount* account) const;
  // Moves the waiters that fit now out of the queues, in order, and takes their
  // bytes.
  Waiters TakeGrantable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the next waiter. Returns false if no waiter fits.
  bool TakeNext(Waiters* grantable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the waiter fits now. Lowers `*allowance` if it doesn't.
  // Requires: the waiters before it were checked with the same `*allowance`.
  bool MayGo(const Waiter& waiter, int64_t* allowance)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the priority that is served next.
  Priority NextPriority() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the executor call the callbacks of `waiters`.
  void Grant(Waiters waiters);
  absl::Status CheckFits(int64_t bytes) const;
  // Ends the waiters for which `check` returns an error, with this error.
  void EndWaiters(absl::FunctionRef<absl::Status(const Waiter&)> check);

  // Returns the most bytes that `client_share_` gives one client.
  int64_t client_bytes() const {
    return static_cast<int64_t>(static_cast<double>(capacity_bytes_) *
                                client_share_);
  }

  // Written with `mutex_` held.
  std::atomic<int64_t> capacity_bytes_;
  const int max_waiters_;
  const double client_share_;
  const Executor executor_;
  const Taken taken_;
  mutable Mutex mutex_;
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::array<Waiters, kPriorities> waiters_ ABSL_GUARDED_BY(mutex_);
  // Accounts of clients that hold bytes or wait.
  std::map<std::string, ClientAccount> accounts_ ABSL_GUARDED_BY(mutex_);
  uint64_t looks_ ABSL_GUARDED_BY(mutex_) = 0;
  PriorityRoundRobin round_robin_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
