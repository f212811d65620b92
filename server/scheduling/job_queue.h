// `JobQueue` holds the jobs that wait for a worker: one bounded queue for each
// priority.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/scheduling/active_job.h"

namespace convgrad {

// `JobQueue` gives a worker one job for each slice or quantum.
// PriorityRoundRobin chooses the priority. Within a priority, Pop takes the
// first job of the client whose last dequeue is longest ago.
//
// Thread-compatible.
class JobQueue {
 public:
  // Takes up to `capacity` new jobs of each priority (see IsFull).
  explicit JobQueue(int capacity) : capacity_(capacity) {}

  int capacity() const { return capacity_; }
  bool empty() const { return size() == 0; }
  int size() const;
  int size(Priority priority) const;
  // Returns whether the queue is full for a new job of this priority and
  // client. Jobs that have been on a worker don't count. A client without a new
  // job may always add one, so that others can't keep it out.
  bool IsFull(Priority priority, const std::string& client) const;

  void Push(std::unique_ptr<ActiveJob> job);
  // Takes back a job that has slices left, as the next job of its client.
  void PutBack(std::unique_ptr<ActiveJob> job);

  // Removes the next job and returns it. Requires: !empty().
  std::unique_ptr<ActiveJob> Pop();

  // Removes the jobs that `is_chosen` chooses; the others keep their order.
  std::vector<std::unique_ptr<ActiveJob>> Remove(
      const std::function<bool(const ActiveJob&)>& is_chosen);

  // Returns the predicted time of the slices that workers take before the last
  // slice of a new job of `slices` slices with this priority and client.
  absl::Duration WorkBefore(Priority priority, const std::string& client,
                            int64_t slices) const;

 private:
  using Jobs = std::deque<std::unique_ptr<ActiveJob>>;
  struct PriorityQueue {
    Jobs jobs;
    int fresh = 0;  // Jobs that no worker has taken yet.
    // The number of each client's last dequeue since the queue was last empty.
    absl::flat_hash_map<std::string, uint64_t> last_dequeues;
  };

  const int capacity_;
  std::array<PriorityQueue, kPriorities> queues_;
  uint64_t next_dequeue_ = 1;
  PriorityRoundRobin round_robin_;
};

}  // namespace convgrad
