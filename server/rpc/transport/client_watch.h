// `ClientWatch` ends calls whose client is too slow.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/rpc/transport/connection_traffic.h"

namespace convgrad {

// gRPC reports a message only when it has come or gone as a whole. So a client
// has a time that depends on the message's size. If the kernel counts the bytes
// of its connection, the client has only `idle_timeout`. Then each `min_rate`
// bytes that come or go restore one second, up to the full time. Thread-safe.
class ClientWatch {
 public:
  // A client has `idle_timeout`, plus a second for each `min_rate` bytes. A
  // rate of 0 sets no limit.
  ClientWatch(absl::Duration idle_timeout, int64_t min_rate)
      : idle_timeout_(idle_timeout), min_rate_(min_rate) {}

  // Returns the time of `bytes` at the least rate.
  absl::Duration TimeFor(int64_t bytes) const;
  // Returns how long the client of a unary call may take for `bytes`.
  absl::Duration AllowedFor(int64_t bytes) const {
    return idle_timeout_ + TimeFor(bytes);
  }

  // Makes Expire call `give_up` after `until`, or when the connection whose
  // bytes `count` counts has used up its time, unless Remove comes first. A
  // null `count` means unknown. With an infinite `until`, Expire never calls
  // `give_up`. Returns an id, never 0.
  uint64_t Add(std::function<void()> give_up,
               absl::Time until = absl::InfiniteFuture(),
               ConnectionTraffic::Count count = nullptr);
  // Sets `until` of a wait, unless it has ended.
  void SetLimit(uint64_t id, absl::Time until);
  // Ends the wait. Returns false if it is too late: `give_up` has run, runs or
  // is about to run.
  bool Remove(uint64_t id);

  // Calls `give_up` of the waits that are over at `now`, with no lock held.
  // Call it regularly.
  void Expire(absl::Time now);

 private:
  struct Wait {
    absl::Time until;
    std::function<void()> give_up;
    ConnectionTraffic::Count count;
    // The next check of the bytes. The client's time starts at the first one.
    absl::Time look_at = absl::InfinitePast();
    int64_t counted_bytes = 0;  // At the last check.
  };

  // Returns whether the client of `wait` has used up its time.
  bool IsOver(absl::Time now, Wait* wait) const;

  const absl::Duration idle_timeout_;
  const int64_t min_rate_;
  Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, Wait> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
