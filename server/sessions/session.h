// `KeptSession` keeps the tensors, programs and tapes of one trainer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/sessions/change_order.h"
#include "server/sessions/client_quotas.h"
#include "server/sessions/kept_state.h"
#include "server/sessions/session_capture.h"

namespace convgrad {

// A snapshot that is kept under a name. Value type.
struct NamedSnapshot {
  int64_t number = 0;  // Of the session.
  int64_t bytes = 0;   // As quotas count them.
};
using NamedSnapshots = std::map<std::string, NamedSnapshot>;

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
  bool durable = false;
  int64_t durable_number = 0;
  bool on_disk = false;  // Memory doesn't have its content.
  NamedSnapshots snapshots = {};
};

// What a client asks for when it opens a session. Value type.
struct SessionRequest {
  static constexpr absl::Duration kDefaultLease = absl::Minutes(10);

  std::string open_id;  // 16 random bytes; a repeat finds the same session.
  std::string name;     // "" if it has none.
  std::vector<std::string> readers;
  absl::Duration lease = kDefaultLease;
  int64_t quota_bytes = 0;  // 0: the limit of all sessions of the server.
  bool durable = false;
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
//
// A durable session stays open until it is closed. When its lease is over, it
// leaves memory: its content is only on disk until a call names it.
class KeptSession {
 public:
  using Decided = ChangeOrder::Decided;
  using Ready = std::function<void(const absl::Status&)>;

  // A request, with its quota settled, and what the server adds to it.
  struct Settings : SessionRequest {
    std::string id = {};      // 16 bytes, secret.
    std::string handle = {};  // A hash of the id for lists; gives no rights.
    std::string label = {};   // Name, or a hash of the id; for spans.
    std::string client = {};  // The client whose quotas count it.
    // The identity that may use the session. "": every client that knows the
    // id.
    std::string owner = {};
  };

  // `quotas` counts the session's bytes and outlives it. `memory` pays for its
  // bookkeeping.
  KeptSession(Settings settings, ClientQuotas* quotas,
              std::shared_ptr<KeptMemory> memory, absl::Time now);
  ~KeptSession();

  const Settings& settings() const { return settings_; }
  SessionInfo info() const;

  // Number of the newest state on disk; 0 if there is none.
  int64_t durable_number() const;
  // Time of the oldest change that isn't on disk; infinite if there is none, or
  // if the session isn't durable.
  absl::Time changed_since() const;

  // Returns the state after the last committed change.
  std::shared_ptr<const KeptState> state() const;

  // These functions are those of ChangeOrder. They may call the callbacks
  // before they return.
  uint64_t Arrive(ChangeId change, absl::Time now, ChangeOrder::Caller caller);
  uint64_t AwaitNumber(int64_t number, absl::Time now,
                       ChangeOrder::Caller caller);
  void AdmitNextEarly(const ChangeId& change);
  bool Withdraw(uint64_t waiter);
  absl::Status CheckEpoch(int64_t epoch) const;
  // Starts a new epoch and returns it. `held` is the epoch of a caller that
  // continues after a restart of the server; 0 for one that takes the session
  // over. Errors: kFailedPrecondition, reason TAKEN_OVER, if `held` isn't 0 and
  // another call than `call_id` has resumed the session since.
  absl::StatusOr<int64_t> StartEpoch(int64_t held = 0,
                                     const std::string& call_id = "");
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
  // Drops all tapes, because the client that took the session over in `epoch`
  // doesn't know them. A durable session with a trainer_state goes back to the
  // last state that is resumable. Does nothing if a later epoch has begun: its
  // client's changes stay. Requires: no change of an earlier epoch runs.
  void DropTapes(int64_t epoch, absl::Time now);
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
  // Ends the session if no call uses it, its lease is over, and it isn't
  // durable. Returns whether it has ended now.
  bool EndIfExpired(absl::Time now);
  // Frees the memory of a durable session that no call uses and whose lease is
  // over, when its newest capture is on disk. Changes after that capture are
  // lost. Returns whether it freed the memory now.
  bool RestIfExpired(absl::Time now);
  // Ends the session: drops its tensors and refuses waiting calls with `why`.
  void End(const absl::Status& why) { EndHeld(0, why).IgnoreError(); }
  // Does the same if `held` is 0 or the epoch of a client that still has the
  // session. Errors: those of ChangeOrder::CheckHolder.
  absl::Status EndHeld(int64_t held, const absl::Status& why);

  // Says that the session is only on disk, after change `number`, with contents
  // of these totals. Requires: no call has used the session.
  void StayOnDisk(int64_t number, const ChangeOrder::Epochs& epochs,
                  const KeptTotals& totals);
  // Calls `ready` when the session's content is in memory, or with the error
  // why it isn't; possibly before this returns. Returns whether the caller must
  // load the content, which ends with Restore or FailToRestore.
  bool AwaitContent(Ready ready);
  // Takes the content from disk, in an epoch of at least
  // `content.epochs.newest`.
  void Restore(const SessionCapture& content, absl::Time now);
  void FailToRestore(const absl::Status& why);

  // Returns the newest state that is resumable, unless it is on disk already. A
  // session that has ended or isn't durable has none.
  std::optional<SessionCapture> NewestCapture(absl::Time now) const;
  // Says that this capture is on disk.
  void OnDurable(const SessionCapture& capture);
  // Returns the newest capture on disk as a snapshot, of number -1 if there is
  // none.
  NamedSnapshot durable_snapshot() const;
  // Says which snapshots of the session are kept under names. Their bytes count
  // in the client's quota, which they may exceed.
  void SetSnapshots(NamedSnapshots snapshots);
  // Adds a snapshot, or replaces the one of this name.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED, if there are too many,
  // or if the client's quota is full; nothing has changed then.
  absl::Status AddSnapshot(const std::string& name, NamedSnapshot snapshot);

 private:
  // Where the content of the session is.
  enum class Place { kMemory, kLoading, kDisk };

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
  // Returns the state that NewestCapture returns; null if there is none.
  std::shared_ptr<const KeptState> Capturable() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Prepares a durable session for the commit of `after`: if this isn't
  // resumable, keeps the last state that is. Returns what the caller frees
  // after it has released the lock.
  std::optional<SessionCapture> NoteChange(const KeptState& after,
                                           absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Goes back to the last state that is resumable, in the same epoch. Returns
  // the state before, which the caller frees after it has released the lock.
  // Requires: no change runs or waits.
  std::shared_ptr<const KeptState> GoBack(absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the session into the state of one that is only on disk.
  void ForgetContent(int64_t number, const ChangeOrder::Epochs& epochs,
                     const KeptTotals& totals)
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
  // The members below are those of a durable session.
  Place place_ ABSL_GUARDED_BY(mutex_) = Place::kMemory;
  // Calls that wait for the content.
  std::vector<Ready> awaiting_ ABSL_GUARDED_BY(mutex_);
  // -1 before the first snapshot.
  int64_t durable_number_ ABSL_GUARDED_BY(mutex_) = -1;
  // ChangeOrder::Epochs::first in the newest snapshot.
  int64_t durable_first_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  KeptTotals durable_totals_ ABSL_GUARDED_BY(mutex_);
  NamedSnapshots snapshots_ ABSL_GUARDED_BY(mutex_);
  absl::Time changed_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // The last state that is resumable, while the current one isn't. Empty if it
  // is on disk and the session has no trainer_state.
  std::optional<SessionCapture> last_resumable_ ABSL_GUARDED_BY(mutex_);
};

// Returns the error for each session that the caller can't use. It is the same
// whether such a session exists or not, so that it reveals nothing. It contains
// the start of the server, because a restarted server has lost its sessions.
absl::Status NoSuchSession();

}  // namespace convgrad
