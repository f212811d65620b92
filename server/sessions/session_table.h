// `SessionTable` holds all sessions of a server, checks who may use them, and
// ends them when their lease is over.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/sessions/client_quotas.h"
#include "server/sessions/digest_index.h"
#include "server/sessions/kept_memory.h"
#include "server/sessions/session.h"
#include "server/sessions/session_access.h"
#include "server/sessions/session_archive.h"

namespace convgrad {

// `SessionUse` is the use of a session by one call. Move-only;
// thread-compatible. A use with a clock keeps the session from expiring, and
// renews the lease at its end. A use without a clock does neither: if the
// session ends, the call continues with the state that it has.
class SessionUse {
 public:
  using Clock = std::function<absl::Time()>;

  SessionUse() = default;
  // Requires: session->Enter returned true, or `clock` is null.
  SessionUse(std::shared_ptr<KeptSession> session, const Clock* clock)
      : session_(std::move(session)), clock_(clock) {}
  SessionUse(SessionUse&& other) noexcept = default;
  SessionUse& operator=(SessionUse&& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(clock_, other.clock_);
    return *this;
  }
  ~SessionUse() {
    if (session_ != nullptr && clock_ != nullptr) session_->Leave((*clock_)());
  }

  KeptSession* operator->() const { return session_.get(); }
  const std::shared_ptr<KeptSession>& session() const { return session_; }
  explicit operator bool() const { return session_ != nullptr; }

 private:
  std::shared_ptr<KeptSession> session_;
  const Clock* clock_ = nullptr;
};

// `SessionTable` is thread-safe.
class SessionTable {
 public:
  static constexpr absl::Duration kMinLease = absl::Seconds(1);
  static constexpr absl::Duration kMaxLease = absl::Hours(24);

  // A session that is on disk when the server starts.
  struct StoredSession {
    KeptSession::Settings settings;  // `handle` and `label` may be empty.
    int64_t number = 0;
    ChangeOrder::Epochs epochs;
    KeptTotals totals;
    NamedSnapshots snapshots = {};
  };

  // All sessions together keep at most the share of `memory`. `clock`
  // needn't agree with any other.
  SessionTable(std::shared_ptr<KeptMemory> memory, ClientQuotas::Limits limits,
               SessionUse::Clock clock);

  // Makes durable sessions possible. `archive` outlives all calls. Call it
  // before calls come.
  void SetArchive(SessionArchive* archive) { archive_ = archive; }
  // Null: sessions can't be durable.
  SessionArchive* archive() const { return archive_; }
  // Adds a session whose content is only on disk. Its client may have more
  // sessions than its limit then. Call it before calls come.
  // Errors: kInvalidArgument as Open; kResourceExhausted.
  absl::Status AddStored(const StoredSession& stored);
  // Says that nothing on disk of the session whose id has this hash can be
  // used, for the reason `why`. Calls that name it get this error.
  void AddBroken(const std::string& hash, const absl::Status& why);
  // Calls `ready` when the content of the session is in memory, or with the
  // error why it isn't; possibly before this returns.
  void AwaitContent(const std::shared_ptr<KeptSession>& session,
                    KeptSession::Ready ready);

  // Opens a session in epoch 1, or returns the session that `open_id` opened
  // before. A durable session isn't on disk yet.
  // Errors: kInvalidArgument naming the field, also if that session has other
  // settings; kAlreadyExists if the caller has a session of this name;
  // kResourceExhausted; kFailedPrecondition if sessions can't be durable.
  absl::StatusOr<SessionUse> Open(const SessionCaller& caller,
                                  const SessionRequest& request);

  // What the caller asks for. Readers have only kRead.
  enum class Right { kAll, kRead };
  // These functions return a use of the caller's session. The use renews the
  // lease if `renews` is true and the caller isn't only a reader.
  // Errors: kNotFound if there is no such session or the caller has no right to
  // it; kPermissionDenied if a reader asks for more than a read;
  // kInvalidArgument for a name from a client without an identity.
  absl::StatusOr<SessionUse> Find(const SessionCaller& caller,
                                  const std::string& id,
                                  Right right = Right::kAll,
                                  bool renews = true);
  absl::StatusOr<SessionUse> FindByName(const SessionCaller& caller,
                                        const std::string& name);

  using Closed = SessionArchive::Done;
  // Ends a session of the caller; an admin may end every session. `held` is the
  // caller's epoch, or 0. Calls `closed` when nothing of it is on disk either,
  // possibly before this returns; with kNotFound if there is no such session;
  // with kFailedPrecondition, reason TAKEN_OVER, if another client has resumed
  // it since `held`; with other errors if something stays on disk.
  void Close(const SessionCaller& caller, const std::string& id, int64_t held,
             const Closed& closed);
  // As Close, for the session with this handle. Requires an identity or the
  // role admin; otherwise the error is kNotFound. An admin may end a session
  // that AddBroken has named.
  void CloseByHandle(const SessionCaller& caller, const std::string& handle,
                     int64_t held, const Closed& closed);

  // Returns the caller's sessions, or all sessions if `everybody`. Doesn't
  // check the caller's role.
  std::vector<SessionInfo> List(const SessionCaller& caller,
                                bool everybody) const;

  // Ends sessions whose lease is over, and refuses changes that have waited too
  // long. Call it regularly.
  void Expire();

  // Ends all sessions and refuses waiting calls with `why`.
  void EndAll(const absl::Status& why);

  absl::Time now() const { return clock_(); }
  DigestIndex* digests() { return &digests_; }
  const DigestIndex& digests() const { return digests_; }
  const std::shared_ptr<KeptMemory>& memory() const { return memory_; }

  // Counters of repeated and aborted changes.
  void CountRepeat() { ++repeats_; }
  void CountAbort() { ++aborts_; }
  int64_t repeats() const { return repeats_; }
  int64_t aborts() const { return aborts_; }

  // Returns the durable sessions, whether in memory or only on disk.
  std::vector<std::shared_ptr<KeptSession>> DurableSessions() const;

  // See ClientQuotas::Uses.
  std::vector<ClientQuotas::Use> ClientUses() const { return quotas_.Uses(); }
  int64_t sessions() const;
  // Counts of what all sessions keep.
  struct Contents {
    int64_t tensors = 0;
    int64_t programs = 0;
    int64_t tapes = 0;
    int64_t tape_bytes = 0;
  };
  Contents contents() const;
  int64_t expired() const { return expired_; }  // Since the start.

 private:
  // A session and the reservation of its bookkeeping.
  struct Entry {
    std::shared_ptr<KeptSession> session;
    std::string open_key;
    std::string name_key;  // "" if it can't be found by name.
    Reservation reservation;
  };
  using Entries = std::map<std::string, Entry>;

  absl::Status Check(const SessionCaller& caller,
                     const SessionRequest& request) const;
  // Returns why the session `id` isn't in the table: NoSuchSession, or the
  // error of AddBroken.
  absl::Status WhyMissing(const std::string& id) const;
  // Forgets the broken session with this handle and returns its hash; "" if
  // there is none.
  std::string TakeBroken(const std::string& handle)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a session. If it `is_new`, its name must be free, and the client's
  // limit applies; otherwise a name that isn't free finds another session.
  // Errors: kAlreadyExists; kResourceExhausted.
  absl::StatusOr<std::shared_ptr<KeptSession>> Add(
      KeptSession::Settings settings, bool is_new)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns a use of the session, which renews the lease if `renews`.
  // Errors: kNotFound if `session` is null or has ended.
  absl::StatusOr<SessionUse> Enter(std::shared_ptr<KeptSession> session,
                                   bool renews);
  std::shared_ptr<KeptSession> Lookup(const std::string& id) const;
  std::vector<std::shared_ptr<KeptSession>> All() const;
  void Remove(const std::string& id);

  const std::shared_ptr<KeptMemory> memory_;
  SessionArchive* archive_ = nullptr;
  ClientQuotas quotas_;
  const SessionUse::Clock clock_;
  DigestIndex digests_;
  std::atomic<int64_t> repeats_{0};
  std::atomic<int64_t> aborts_{0};
  std::atomic<int64_t> expired_{0};
  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  // Ids by client and open id, and by identity and name.
  std::map<std::string, std::string> by_open_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> by_name_ ABSL_GUARDED_BY(mutex_);
  // Errors by hash; see AddBroken.
  std::map<std::string, absl::Status> broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
