// How long a call waits for its client.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/rpc/transport/connection_traffic.h"

namespace convgrad {

// gRPC tells nothing of a message until the whole of it has come or gone. So a
// client gets a time that follows from the message's bytes, and what it holds
// up is ended after that. Where its connection's bytes are counted it doesn't
// get that time in advance: it has `idle_timeout`, and what comes and goes
// gives it back a second for each `min_rate` bytes, never more than it has
// used. Thread-safe.
class ClientWatch {
 public:
  // A client has `idle_timeout`, and a second more for each `min_rate` bytes;
  // if that is 0 it has for ever.
  ClientWatch(absl::Duration idle_timeout, int64_t min_rate)
      : idle_timeout_(idle_timeout), min_rate_(min_rate) {}

  // Returns what `bytes` take at the least rate.
  absl::Duration TimeFor(int64_t bytes) const;
  // Returns how long the client of a unary call may take for `bytes`.
  absl::Duration AllowedFor(int64_t bytes) const {
    return idle_timeout_ + TimeFor(bytes);
  }

  // Has Expire call `give_up` after `until`, unless Remove comes first, or as
  // soon as the connection whose bytes `count` counts has stood still; null: it
  // isn't known. With an infinite `until` nothing is given up. Returns an id,
  // never 0.
  uint64_t Add(std::function<void()> give_up,
               absl::Time until = absl::InfiniteFuture(),
               ConnectionTraffic::Count count = nullptr);
  // Sets `until` of what was added, unless it has ended.
  void SetLimit(uint64_t id, absl::Time until);
  // Returns false if that is too late: `give_up` has run, runs or is about to.
  bool Remove(uint64_t id);

  // Gives up what isn't to be waited for until `now`, with no lock held. To be
  // called regularly.
  void Expire(absl::Time now);

 private:
  struct Wait {
    absl::Time until;
    std::function<void()> give_up;
    ConnectionTraffic::Count count;
    // When the client's time is used up unless bytes have given it some back;
    // before the first look it hasn't begun.
    absl::Time look_at = absl::InfinitePast();
    int64_t counted_bytes = 0;  // at the last look
  };

  // Returns whether the client of `wait` has had its time.
  bool IsOver(absl::Time now, Wait* wait) const;

  const absl::Duration idle_timeout_;
  const int64_t min_rate_;
  Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, Wait> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
