#include "server/scheduling/job_queue.h"

#include <algorithm>

namespace convgrad {
namespace {

bool IsFresh(const ActiveJob& job) {
  return !job.outcome.planned && !job.job.continues;
}

}  // namespace

int JobQueue::size(Priority priority) const {
  return static_cast<int>(queues_[IndexOf(priority)].jobs.size());
}

int JobQueue::size() const {
  return size(Priority::kBatch) + size(Priority::kInteractive);
}

bool JobQueue::IsFull(Priority priority, const std::string& client) const {
  const PriorityQueue& queue = queues_[IndexOf(priority)];
  return queue.fresh >= capacity_ &&
         std::any_of(queue.jobs.begin(), queue.jobs.end(),
                     [&](const auto& job) {
                       return IsFresh(*job) && job->job.client == client;
                     });
}

void JobQueue::Push(std::unique_ptr<ActiveJob> job) {
  PriorityQueue& queue = queues_[IndexOf(job->job.priority)];
  if (IsFresh(*job)) ++queue.fresh;
  queue.jobs.push_back(std::move(job));
}

void JobQueue::PutBack(std::unique_ptr<ActiveJob> job) {
  queues_[IndexOf(job->job.priority)].jobs.push_front(std::move(job));
}

std::unique_ptr<ActiveJob> JobQueue::Pop() {
  const bool batch_waits = size(Priority::kBatch) > 0;
  const Priority priority =
      round_robin_.Next(batch_waits, size(Priority::kInteractive) > 0);
  round_robin_.Take(priority, batch_waits);
  PriorityQueue& queue = queues_[IndexOf(priority)];
  const auto last_dequeue = [&queue](const std::unique_ptr<ActiveJob>& job) {
    const auto last = queue.last_dequeues.find(job->job.client);
    return last == queue.last_dequeues.end() ? 0 : last->second;
  };
  const auto chosen = std::min_element(
      queue.jobs.begin(), queue.jobs.end(), [&](const auto& a, const auto& b) {
        return last_dequeue(a) < last_dequeue(b);
      });
  std::unique_ptr<ActiveJob> job = std::move(*chosen);
  queue.jobs.erase(chosen);
  if (IsFresh(*job)) --queue.fresh;
  if (queue.jobs.empty()) queue.last_dequeues.clear();
  queue.last_dequeues[job->job.client] = next_dequeue_++;
  return job;
}

std::vector<std::unique_ptr<ActiveJob>> JobQueue::Remove(
    const std::function<bool(const ActiveJob&)>& is_chosen) {
  std::vector<std::unique_ptr<ActiveJob>> removed;
  for (PriorityQueue& queue : queues_) {
    const auto first = std::stable_partition(
        queue.jobs.begin(), queue.jobs.end(),
        [&](const auto& job) { return !is_chosen(*job); });
    for (auto job = first; job != queue.jobs.end(); ++job) {
      if (IsFresh(**job)) --queue.fresh;
      removed.push_back(std::move(*job));
    }
    queue.jobs.erase(first, queue.jobs.end());
  }
  return removed;
}

absl::Duration JobQueue::WorkBefore(Priority priority,
                                    const std::string& client,
                                    int64_t slices) const {
  absl::Duration work;
  // Adds the time of at most `slices` slices of `job` to `work`. Returns how
  // many slices it added.
  const auto add = [&work](const ActiveJob& job, int64_t slices) {
    const int64_t taken = std::min(slices, job.slices_left());
    work += static_cast<double>(taken) * job.slice_time;
    return taken;
  };
  const PriorityQueue& queue = queues_[IndexOf(priority)];
  int64_t own = slices;
  for (const auto& job : queue.jobs) {
    if (job->job.client == client) own += add(*job, job->slices_left());
  }
  // Pop is fair, so until then no other client is dequeued more often than this
  // one.
  absl::flat_hash_map<std::string, int64_t> others;
  int64_t dequeues = own;
  for (const auto& job : queue.jobs) {
    if (job->job.client == client) continue;
    int64_t& taken = others[job->job.client];
    const int64_t more = add(*job, own - taken);
    taken += more;
    dequeues += more;
  }
  const bool is_batch = priority == Priority::kBatch;
  int64_t share = is_batch ? dequeues * PriorityRoundRobin::kInteractiveWeight
                           : dequeues / PriorityRoundRobin::kInteractiveWeight;
  const PriorityQueue& rest =
      queues_[IndexOf(is_batch ? Priority::kInteractive : Priority::kBatch)];
  for (const auto& job : rest.jobs) share -= add(*job, share);
  return work;
}

}  // namespace convgrad
