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

// A use of a session by one call. Move-only. A use with a clock renews the
// lease at its end, and the session doesn't expire before. A use without a
// clock does neither: the call goes on with the state that it has if the
// session ends.
class SessionUse {
 public:
  using Clock = std::function<absl::Time()>;

  SessionUse() = default;
  // Requires: session->Enter was true, or `clock` is null.
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

// Thread-safe.
class SessionTable {
 public:
  static constexpr absl::Duration kMinLease = absl::Seconds(1);
  static constexpr absl::Duration kMaxLease = absl::Hours(24);
  static constexpr absl::Duration kDefaultLease = absl::Minutes(10);

  struct OpenRequest {
    std::string open_id;  // 16 random bytes: a repeat opens nothing new
    std::string name;     // may be empty
    std::vector<std::string> readers;
    absl::Duration lease = kDefaultLease;
    int64_t quota_bytes = 0;  // 0: all that the server keeps
  };

  // `memory` is what all sessions keep together. `clock` may be a test's.
  SessionTable(std::shared_ptr<KeptMemory> memory, ClientQuotas::Limits limits,
               SessionUse::Clock clock);
  ~SessionTable();

  // Opens a session, in epoch 1, or returns the one that `open_id` has opened.
  // Errors: kInvalidArgument naming the field; kAlreadyExists if the caller has
  // a session of this name; kResourceExhausted.
  absl::StatusOr<SessionUse> Open(const SessionCaller& caller,
                                  const OpenRequest& request);

  // Return the caller's session. An admin may end anybody's, and readers read.
  // The use renews the lease if `renews` and the caller is no mere reader.
  // Errors: kNotFound if there is no such session, or it isn't the caller's to
  // know of; kPermissionDenied for a reader, unless it reads.
  absl::StatusOr<SessionUse> Find(const SessionCaller& caller,
                                  const std::string& id, bool renews = true);
  absl::StatusOr<SessionUse> FindToRead(const SessionCaller& caller,
                                        const std::string& id,
                                        bool renews = true);
  absl::StatusOr<SessionUse> FindByName(const SessionCaller& caller,
                                        const std::string& name);

  // Ends the caller's session, or anybody's for an admin.
  // Errors: kNotFound.
  absl::Status Close(const SessionCaller& caller, const std::string& id);
  // As Close, of the session that a list names by this handle. Takes an
  // identity or the role admin.
  absl::Status CloseByHandle(const SessionCaller& caller,
                             const std::string& handle);

  // Returns the caller's sessions, or everybody's, an admin's right.
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

  // Count what became of changes.
  void CountRepeat() { ++repeats_; }
  void CountAbort() { ++aborts_; }
  int64_t repeats() const { return repeats_; }
  int64_t aborts() const { return aborts_; }

  // See ClientQuotas.
  std::vector<ClientQuotas::Use> ClientUses() const { return quotas_.Uses(); }
  int64_t sessions() const;
  // What all sessions keep.
  struct Contents {
    int64_t tensors = 0;
    int64_t programs = 0;
    int64_t tapes = 0;
    int64_t tape_bytes = 0;
  };
  Contents contents() const;
  int64_t expired() const;  // since the start

 private:
  // A session with the reservation of its bookkeeping.
  struct Entry {
    std::shared_ptr<KeptSession> session;
    std::string open_key;
    std::string name_key;  // "" if it can't be found by name
    Reservation reservation;
  };
  using Entries = std::map<std::string, Entry>;

  absl::Status Check(const SessionCaller& caller,
                     const OpenRequest& request) const;
  // Returns a use of the session that renews the lease, or one that doesn't.
  // Errors: kNotFound if `session` is null or has ended.
  absl::StatusOr<SessionUse> Enter(std::shared_ptr<KeptSession> session,
                                   bool renews);
  std::shared_ptr<KeptSession> Lookup(const std::string& id) const;
  // Removes an entry.
  void Remove(const std::string& id);

  const std::shared_ptr<KeptMemory> memory_;
  ClientQuotas quotas_;
  const SessionUse::Clock clock_;
  DigestIndex digests_;
  std::atomic<int64_t> repeats_{0};
  std::atomic<int64_t> aborts_{0};
  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  // Ids, by client and open id, and by identity and name.
  std::map<std::string, std::string> by_open_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> by_name_ ABSL_GUARDED_BY(mutex_);
  int64_t expired_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad
