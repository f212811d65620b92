// `SnapshotPacing` decides when the server writes the next snapshot that no
// client asked for.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace convgrad {

// A session is due when its oldest change that isn't on disk is `interval` old.
// Snapshots wait longer if writing would take more than kShare of the time, or
// if the session's last snapshot or its removal failed. Thread-compatible.
class SnapshotPacing {
 public:
  // The part of the time that writing may take.
  static constexpr double kShare = 0.035;
  // The time after which a snapshot that failed is tried again, if the interval
  // isn't shorter.
  static constexpr absl::Duration kRetry = absl::Seconds(10);

  explicit SnapshotPacing(absl::Duration interval) : interval_(interval) {}

  // `session` is any name of the session, the same in all calls.
  bool IsDue(const std::string& session, absl::Time changed_since,
             absl::Time now) const {
    return MayTry(session, now) && free_at_ <= now &&
           changed_since + interval_ <= now;
  }
  // Returns whether the session's last snapshot didn't fail a moment ago.
  bool MayTry(const std::string& session, absl::Time now) const {
    const auto failed = retry_at_.find(session);
    return failed == retry_at_.end() || failed->second <= now;
  }
  bool HasFailed(const std::string& session) const {
    return retry_at_.contains(session);
  }

  // A snapshot that no client asked for took from `start` to `end`. Snapshots
  // that a client asks for don't count, because they would delay those of other
  // clients' sessions.
  void OnUnasked(absl::Time start, absl::Time end) {
    free_at_ = end + (end - start) * (1 / kShare - 1);
  }
  // Any snapshot, or a removal, has ended. Later failures don't delay the next
  // try, because clients may ask again and again.
  void OnEnd(const std::string& session, bool is_ok, absl::Time end) {
    if (is_ok) {
      retry_at_.erase(session);
    } else if (MayTry(session, end)) {
      retry_at_[session] = end + std::min(interval_, kRetry);
    }
  }

 private:
  const absl::Duration interval_;
  absl::Time free_at_ = absl::InfinitePast();
  // Sessions whose last snapshot failed.
  std::map<std::string, absl::Time> retry_at_;
};

}  // namespace convgrad
