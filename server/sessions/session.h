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
  std::string name;
  std::string client;
  int64_t epoch = 0;
  int64_t number = 0;
  int64_t tensors = 0;
  int64_t kept_bytes = 0;  // as quotas count them
  int64_t quota_bytes = 0;
  absl::Duration lease;
  absl::Time expires;  // infinite while a call uses it
};

// Thread-safe. No callback is called with a lock held.
class KeptSession {
 public:
  using Decided = ChangeOrder::Decided;

  struct Settings {
    std::string id;      // 16 bytes, secret
    std::string name;    // "" if it has none
    std::string label;   // its name, or a hash of its id: for spans
    std::string client;  // whose quotas count it
    // Who may use it. "": who has the id, since clients show no identity.
    std::string owner;
    std::vector<std::string> readers;
    absl::Duration lease;
    int64_t quota_bytes = 0;
  };

  // `quotas` counts what the session keeps and outlives it.
  KeptSession(Settings settings, ClientQuotas* quotas, absl::Time now);
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

  // Counts what `writes` will keep against the quotas. To be called by the
  // change that runs, before it writes; again, if it learns more.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED.
  absl::Status Promise(const KeptWrites& writes);
  // Ends the change that runs: `writes` take effect, at once and all together,
  // and `reply` is its answer. Requires: they were promised. Returns its
  // number, or that the session was closed meanwhile.
  // Errors: kNotFound.
  absl::StatusOr<int64_t> Commit(const KeptWrites& writes,
                                 ChangeOrder::Reply reply, absl::Time now);
  // Ends the change that runs without effect.
  // Returns what to tell its client (ChangeOrder::Fail).
  absl::Status Fail(const absl::Status& why, absl::Time now);

  // While somebody uses it, it doesn't expire; afterwards for its lease.
  // Returns false if it has expired or was closed.
  bool Enter(absl::Time now);
  void Leave(absl::Time now);
  // Ends the session if nobody uses it and its lease is over. Returns whether
  // it has ended, now or before.
  bool EndIfExpired(absl::Time now);
  // Ends the session: its tensors are dropped, who waits is refused with `why`.
  void End(const absl::Status& why);

 private:
  const Settings settings_;
  ClientQuotas* const quotas_;
  mutable Mutex mutex_;
  ChangeOrder order_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const KeptState> state_ ABSL_GUARDED_BY(mutex_);
  // Counted in `quotas_`.
  int64_t promised_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time expires_ ABSL_GUARDED_BY(mutex_);
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Returns the one answer for sessions that the caller can't use, whatever the
// cause: a guesser learns nothing.
absl::Status NoSuchSession();

}  // namespace convgrad
