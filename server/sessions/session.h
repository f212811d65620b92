// What the server keeps for one trainer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/sessions/change_order.h"
#include "server/sessions/client_quotas.h"
#include "server/sessions/kept_state.h"

namespace convgrad {

// Sizes and numbers of a session, for lists.
struct SessionInfo {
  std::string handle;  // see KeptSession::Settings
  std::string name;
  std::string client;
  int64_t epoch = 0;
  int64_t number = 0;
  int64_t tensors = 0;
  int64_t kept_bytes = 0;   // as quotas count them
  int64_t reply_bytes = 0;  // which quotas count as well
  int64_t quota_bytes = 0;
  absl::Duration lease;
  absl::Time expires;  // infinite while a call uses it
};

// What the answer of a change takes while it is kept. Value type.
struct ReplySize {
  // Paid for already, by the call's own memory.
  int64_t payload_bytes = 0;
  // Everything else, bookkeeping included.
  int64_t head_bytes = 1024;
};

// Thread-safe. No callback is called with a lock held.
class KeptSession {
 public:
  using Decided = ChangeOrder::Decided;

  struct Settings {
    std::string id;      // 16 bytes, secret
    std::string handle;  // a hash of the id, for lists: no right to anything
    std::string name;    // "" if it has none
    std::string label;   // its name, or a hash of its id: for spans
    std::string client;  // whose quotas count it
    // Who may use it. "": who has the id, since clients show no identity.
    std::string owner;
    std::vector<std::string> readers;
    absl::Duration lease;
    int64_t quota_bytes = 0;
  };

  // `quotas` counts what the session keeps and outlives it; `memory` pays for
  // its bookkeeping.
  KeptSession(Settings settings, ClientQuotas* quotas,
              std::shared_ptr<KeptMemory> memory, absl::Time now);
  ~KeptSession();

  const Settings& settings() const { return settings_; }
  SessionInfo info() const;
  // As ChangeOrder's.
  int64_t epoch() const;
  int64_t replies() const;

  // Returns its tensors as the last committed change left them.
  std::shared_ptr<const KeptState> state() const;

  // See ChangeOrder. Callers may be told before these return.
  uint64_t Arrive(ChangeId change, absl::Time now, ChangeOrder::Caller caller);
  uint64_t AwaitNumber(int64_t number, absl::Time now,
                       ChangeOrder::Caller caller);
  void LetNextPrepare(const ChangeId& change);
  bool Withdraw(uint64_t waiter);
  int64_t StartEpoch();
  void AwaitSettled(Decided settled);
  void Expire(absl::Time now);

  // Counts what `writes` and the answer will keep against the quotas, and takes
  // the memory of their bookkeeping. To be called by the change that runs,
  // before it writes; again, if it learns more. A change that only drops is
  // never refused.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED, or BUSY if replies that
  // the client hasn't acknowledged are in the way, or there is no memory now.
  absl::Status Promise(const KeptWrites& writes, const ReplySize& reply);
  // Ends the change that runs: `writes` take effect, at once and all together,
  // and `reply` is its answer. Requires: they were promised. Returns its
  // number, or that the session was closed meanwhile.
  // Errors: kNotFound.
  absl::StatusOr<int64_t> Commit(const KeptWrites& writes,
                                 ChangeOrder::Reply reply, absl::Time now);
  // Drops all tapes: who took the session over can't know them. Requires: no
  // change runs.
  void DropTapes();
  // Ends the change that runs without effect.
  // Returns what to tell its client (ChangeOrder::Fail).
  absl::Status Fail(const absl::Status& why, absl::Time now);

  // While somebody uses it, it doesn't expire; afterwards for its lease.
  // Returns false if it has expired or was closed.
  bool Enter(absl::Time now);
  void Leave(absl::Time now);
  // Returns whether the session has neither expired nor was closed.
  bool IsOpen(absl::Time now) const;
  // Ends the session if nobody uses it and its lease is over. Returns whether
  // it has ended, now or before.
  bool EndIfExpired(absl::Time now);
  // Ends the session: its tensors are dropped, who waits is refused with `why`.
  void End(const absl::Status& why);

 private:
  bool IsOpenLocked(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Of the change that runs.
  struct Promised {
    KeptBooking reply;
    std::shared_ptr<const Reservation> entries;
    // What it counts in quotas beside what is kept already.
    int64_t bytes = 0;
  };

  absl::Status CheckQuota(const KeptTotals& after, int64_t reply_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakePromised(const KeptTotals& after, const ReplySize& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts what is kept and promised now. Errors: those of
  // ClientQuotas::Exchange, never if it is less than before.
  absl::Status Recount() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Settings settings_;
  ClientQuotas* const quotas_;
  const std::shared_ptr<KeptMemory> memory_;
  mutable Mutex mutex_;
  ChangeOrder order_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const KeptState> state_ ABSL_GUARDED_BY(mutex_);
  Promised promised_ ABSL_GUARDED_BY(mutex_);
  // In `quotas_`.
  int64_t counted_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time expires_ ABSL_GUARDED_BY(mutex_);
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Returns the one answer for sessions that the caller can't use, whatever the
// cause: a guesser learns nothing. It says since when the server runs, since a
// server that was started again has lost its sessions.
absl::Status NoSuchSession();

}  // namespace convgrad
