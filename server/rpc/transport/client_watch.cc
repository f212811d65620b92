#include "server/rpc/transport/client_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace convgrad {

absl::Duration ClientWatch::TimeFor(int64_t bytes) const {
  if (min_rate_ == 0) return absl::InfiniteDuration();
  return absl::Seconds(static_cast<double>(bytes) / min_rate_);
}

uint64_t ClientWatch::Add(std::function<void()> give_up, absl::Time until,
                          ConnectionTraffic::Count count) {
  MutexLock lock(&mutex_);
  waits_.emplace(++last_id_, Wait{until, std::move(give_up), std::move(count)});
  return last_id_;
}

void ClientWatch::SetLimit(uint64_t id, absl::Time until) {
  MutexLock lock(&mutex_);
  const auto found = waits_.find(id);
  if (found != waits_.end()) found->second.until = until;
}

bool ClientWatch::Remove(uint64_t id) {
  Wait ended;  // Destroyed after the lock is released.
  MutexLock lock(&mutex_);
  const auto found = waits_.find(id);
  if (found == waits_.end()) return false;
  ended = std::move(found->second);
  waits_.erase(found);
  return true;
}

bool ClientWatch::IsOver(absl::Time now, Wait* wait) const {
  if (wait->until <= now) return true;
  if (wait->count == nullptr || wait->until == absl::InfiniteFuture() ||
      now < wait->look_at) {
    return false;
  }
  const bool is_first = wait->look_at == absl::InfinitePast();
  const int64_t before = std::exchange(wait->counted_bytes, wait->count());
  if (is_first) wait->look_at = now + idle_timeout_;
  if (is_first || wait->counted_bytes == 0) return false;
  // The sum shrinks when another connection of this peer closes.
  const int64_t more = std::max<int64_t>(wait->counted_bytes - before, 0);
  wait->look_at = std::min(wait->look_at + TimeFor(more), now + idle_timeout_);
  return wait->look_at <= now;
}

void ClientWatch::Expire(absl::Time now) {
  std::vector<Wait> expired;
  {
    MutexLock lock(&mutex_);
    absl::erase_if(waits_, [&](auto& entry) {
      if (!IsOver(now, &entry.second)) return false;
      expired.push_back(std::move(entry.second));
      return true;
    });
  }
  for (const Wait& wait : expired) wait.give_up();
}

}  // namespace convgrad
