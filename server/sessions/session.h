// `KeptSession` keeps the tensors, programs and tapes of one trainer.
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

// The bytes of a change's answer while the session keeps it. Value type.
struct ReplySize {
  // The call's own memory pays for these.
  int64_t payload_bytes = 0;
  // Everything else, bookkeeping included.
  int64_t head_bytes = 1024;
};

// One lock guards order and state, so that number and tensors change at one
// moment. Thread-safe. No callback is called with a lock held.
class KeptSession {
 public:
  using Decided = ChangeOrder::Decided;

  struct Settings {
    std::string id;      // 16 bytes, secret
    std::string handle;  // a hash of the id, for lists: no right to anything
    std::string name;    // "" if it has none
    std::string label;   // its name, or a hash of its id: for spans
    std::string client;  // whose quotas count it
    // The identity that may use it. "": whoever has the id.
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

  // Returns its tensors as the last committed change left them.
  std::shared_ptr<const KeptState> state() const;

  // See ChangeOrder. Callers may be told before these return.
  uint64_t Arrive(ChangeId change, absl::Time now, ChangeOrder::Caller caller);
  uint64_t AwaitNumber(int64_t number, absl::Time now,
                       ChangeOrder::Caller caller);
  void AdmitNextEarly(const ChangeId& change);
  bool Withdraw(uint64_t waiter);
  int64_t StartEpoch();
  void AwaitSettled(Decided settled);
  void Expire(absl::Time now);

  // Counts `writes` and the answer in the quotas, and takes the memory of their
  // bookkeeping. The running change calls it before it writes, and again if its
  // writes change. A change that only drops names is never refused.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED, or BUSY if replies that
  // the client hasn't acknowledged take the room, or there is no memory now.
  absl::Status Promise(const KeptWrites& writes, const ReplySize& reply);
  // Ends the running change: all of `writes` take effect at one moment, and
  // `reply` is its answer. Requires: they were promised. Returns the change's
  // number, or an error if the session was closed meanwhile.
  // Errors: kNotFound.
  absl::StatusOr<int64_t> Commit(const KeptWrites& writes,
                                 ChangeOrder::Reply reply, absl::Time now);
  // Drops all tapes, because a client that took the session over doesn't know
  // them. Requires: no change runs.
  void DropTapes();
  // Ends the running change without effect. Returns the status of its call
  // (ChangeOrder::Fail).
  absl::Status Fail(const absl::Status& why, absl::Time now);

  // Enter begins a use, which keeps the session from expiring, and returns
  // false if it has expired or was closed. Leave ends the use and renews the
  // lease.
  bool Enter(absl::Time now);
  void Leave(absl::Time now);
  // Returns whether the session has neither expired nor was closed.
  bool IsOpen(absl::Time now) const;
  // Ends the session if no call uses it and its lease is over. Returns whether
  // it has ended, now or before.
  bool EndIfExpired(absl::Time now);
  // Ends the session: drops its tensors and refuses waiting calls with `why`.
  void End(const absl::Status& why);

 private:
  bool IsOpenLocked(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The promise of the running change.
  struct Promised {
    KeptBooking reply;
    std::shared_ptr<const Reservation> entries;
    // Bytes that it adds in quotas.
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

// Returns the one error for all sessions that the caller can't use, so that a
// guesser learns nothing. It says since when the server runs, because a
// restarted server has lost its sessions.
absl::Status NoSuchSession();

}  // namespace convgrad
