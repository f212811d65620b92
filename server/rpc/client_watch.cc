#include "server/rpc/client_watch.h"

#include <utility>
#include <vector>

namespace convgrad {

absl::Duration ClientWatch::TimeFor(int64_t bytes) const {
  if (min_rate_ == 0) return absl::InfiniteDuration();
  return absl::Seconds(static_cast<double>(bytes) / min_rate_);
}

uint64_t ClientWatch::Add(std::function<void()> give_up, absl::Time until) {
  MutexLock lock(&mutex_);
  waits_.emplace(++last_id_, Wait{until, std::move(give_up)});
  return last_id_;
}

void ClientWatch::SetLimit(uint64_t id, absl::Time until) {
  MutexLock lock(&mutex_);
  const auto found = waits_.find(id);
  if (found != waits_.end()) found->second.until = until;
}

bool ClientWatch::Remove(uint64_t id) {
  Wait ended;  // outlives the lock
  MutexLock lock(&mutex_);
  const auto found = waits_.find(id);
  if (found == waits_.end()) return false;
  ended = std::move(found->second);
  waits_.erase(found);
  return true;
}

void ClientWatch::Expire(absl::Time now) {
  std::vector<Wait> expired;
  {
    MutexLock lock(&mutex_);
    absl::erase_if(waits_, [&](auto& entry) {
      if (entry.second.until > now) return false;
      expired.push_back(std::move(entry.second));
      return true;
    });
  }
  for (const Wait& wait : expired) wait.give_up();
}

}  // namespace convgrad
