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
  static constexpr absl::Duration kDefaultLease = absl::Minutes(10);

  struct OpenRequest {
    std::string open_id;  // 16 random bytes; a repeat finds the same session.
    std::string name;     // May be empty.
    std::vector<std::string> readers;
    absl::Duration lease = kDefaultLease;
    int64_t quota_bytes = 0;  // 0: the limit of all sessions of the server.
  };

  // All sessions together keep at most the share of `memory`. Tests may pass
  // their own `clock`.
  SessionTable(std::shared_ptr<KeptMemory> memory, ClientQuotas::Limits limits,
               SessionUse::Clock clock);
  ~SessionTable();

  // Opens a session in epoch 1, or returns the session that `open_id` opened
  // before.
  // Errors: kInvalidArgument naming the field; kAlreadyExists if the caller has
  // a session of this name; kResourceExhausted.
  absl::StatusOr<SessionUse> Open(const SessionCaller& caller,
                                  const OpenRequest& request);

  // These functions return a use of the caller's session. FindToRead admits
  // readers as well. The use renews the lease if `renews` is true and the
  // caller isn't only a reader.
  // Errors: kNotFound if there is no such session or the caller has no right to
  // it; kPermissionDenied if a reader asks for more than a read.
  absl::StatusOr<SessionUse> Find(const SessionCaller& caller,
                                  const std::string& id, bool renews = true);
  absl::StatusOr<SessionUse> FindToRead(const SessionCaller& caller,
                                        const std::string& id,
                                        bool renews = true);
  absl::StatusOr<SessionUse> FindByName(const SessionCaller& caller,
                                        const std::string& name);

  // Ends a session of the caller; an admin may end every session.
  // Errors: kNotFound.
  absl::Status Close(const SessionCaller& caller, const std::string& id);
  // As Close, for the session with this handle. Requires an identity or the
  // role admin; otherwise the error is kNotFound.
  absl::Status CloseByHandle(const SessionCaller& caller,
                             const std::string& handle);

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
  int64_t expired() const;  // Since the start.

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
                     const OpenRequest& request) const;
  // Returns a use of the session, which renews the lease if `renews`.
  // Errors: kNotFound if `session` is null or has ended.
  absl::StatusOr<SessionUse> Enter(std::shared_ptr<KeptSession> session,
                                   bool renews);
  std::shared_ptr<KeptSession> Lookup(const std::string& id) const;
  void Remove(const std::string& id);

  const std::shared_ptr<KeptMemory> memory_;
  ClientQuotas quotas_;
  const SessionUse::Clock clock_;
  DigestIndex digests_;
  std::atomic<int64_t> repeats_{0};
  std::atomic<int64_t> aborts_{0};
  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  // Ids by client and open id, and by identity and name.
  std::map<std::string, std::string> by_open_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> by_name_ ABSL_GUARDED_BY(mutex_);
  int64_t expired_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad
