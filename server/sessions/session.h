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
  std::string handle;  // See KeptSession::Settings.
  std::string name;
  std::string client;
  int64_t epoch = 0;
  int64_t number = 0;
  int64_t tensors = 0;
  int64_t kept_bytes = 0;   // As quotas count them.
  int64_t reply_bytes = 0;  // Quotas count them as well.
  int64_t quota_bytes = 0;
  absl::Duration lease;
  absl::Time expires;  // Infinite while a call uses the session.
};

// The bytes of a change's answer while the session keeps it. Value type.
struct ReplySize {
  // Bytes that the call's own memory pays for.
  int64_t payload_bytes = 0;
  // All other bytes, including bookkeeping.
  int64_t head_bytes = 1024;
};

// `KeptSession` guards order and state with one lock, so that number and
// tensors change atomically. Thread-safe. It calls no callback with the lock
// held.
class KeptSession {
 public:
  using Decided = ChangeOrder::Decided;

  struct Settings {
    std::string id;      // 16 bytes, secret.
    std::string handle;  // A hash of the id for lists; gives no rights.
    std::string name;    // "" if it has none.
    std::string label;   // Name, or a hash of the id; for spans.
    std::string client;  // The client whose quotas count it.
    // The identity that may use the session. "": every client that knows the
    // id.
    std::string owner;
    std::vector<std::string> readers;
    absl::Duration lease;
    int64_t quota_bytes = 0;
  };

  // `quotas` counts the session's bytes and outlives it. `memory` pays for its
  // bookkeeping.
  KeptSession(Settings settings, ClientQuotas* quotas,
              std::shared_ptr<KeptMemory> memory, absl::Time now);
  ~KeptSession();

  const Settings& settings() const { return settings_; }
  SessionInfo info() const;
  // See ChangeOrder::epoch.
  int64_t epoch() const;

  // Returns the state after the last committed change.
  std::shared_ptr<const KeptState> state() const;

  // These functions are those of ChangeOrder. They may call the callbacks
  // before they return.
  uint64_t Arrive(ChangeId change, absl::Time now, ChangeOrder::Caller caller);
  uint64_t AwaitNumber(int64_t number, absl::Time now,
                       ChangeOrder::Caller caller);
  void AdmitNextEarly(const ChangeId& change);
  bool Withdraw(uint64_t waiter);
  int64_t StartEpoch();
  void AwaitSettled(Decided settled);
  void Expire(absl::Time now);

  // Counts `writes` and the answer in the quotas, and reserves the memory of
  // their bookkeeping. The running change calls it before it writes, and again
  // if its writes change. A change that only drops names is never refused.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED; reason BUSY if replies
  // that the client hasn't acknowledged take the room, or if there is no memory
  // now.
  absl::Status Promise(const KeptWrites& writes, const ReplySize& reply);
  // Commits the running change: all of `writes` take effect atomically, and
  // `reply` is its answer. Requires: Promise with these writes. Returns the
  // change's number.
  // Errors: kNotFound if the session was closed meanwhile.
  absl::StatusOr<int64_t> Commit(const KeptWrites& writes,
                                 ChangeOrder::Reply reply, absl::Time now);
  // Drops all tapes, because a client that took the session over doesn't know
  // them. Requires: no change runs.
  void DropTapes();
  // Ends the running change without effect. Returns the status of its call
  // (ChangeOrder::Fail).
  absl::Status Fail(const absl::Status& why, absl::Time now);

  // Enter starts a use, which keeps the session from expiring. It returns false
  // if the session has expired or was closed. Leave ends the use and renews the
  // lease.
  bool Enter(absl::Time now);
  void Leave(absl::Time now);
  // Returns whether the session is open: neither expired nor closed.
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
    // Bytes that the change adds in quotas.
    int64_t bytes = 0;
  };

  absl::Status CheckQuota(const KeptTotals& after, int64_t reply_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakePromised(const KeptTotals& after, const ReplySize& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Updates the client's quota to the bytes that are kept and promised now.
  // Errors: those of ClientQuotas::Exchange, but none if the bytes decrease.
  absl::Status Recount() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Settings settings_;
  ClientQuotas* const quotas_;
  const std::shared_ptr<KeptMemory> memory_;
  mutable Mutex mutex_;
  ChangeOrder order_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const KeptState> state_ ABSL_GUARDED_BY(mutex_);
  Promised promised_ ABSL_GUARDED_BY(mutex_);
  // The session's bytes in `quotas_`.
  int64_t counted_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time expires_ ABSL_GUARDED_BY(mutex_);
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Returns the error for each session that the caller can't use. It is the same
// whether such a session exists or not, so that it reveals nothing. It contains
// the start of the server, because a restarted server has lost its sessions.
absl::Status NoSuchSession();

}  // namespace convgrad
