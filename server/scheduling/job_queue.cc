#include "server/scheduling/job_queue.h"

#include <algorithm>
#include <iterator>

namespace convgrad {
namespace {

bool IsFresh(const ActiveJob& job) { return !job.outcome.planned; }

}  // namespace

JobQueue::PriorityQueue& JobQueue::QueueOf(Priority priority) {
  return queues_[static_cast<size_t>(priority)];
}

const JobQueue::PriorityQueue& JobQueue::QueueOf(Priority priority) const {
  return queues_[static_cast<size_t>(priority)];
}

int JobQueue::size(Priority priority) const {
  return static_cast<int>(QueueOf(priority).jobs.size());
}

int JobQueue::size() const {
  return size(Priority::kBatch) + size(Priority::kInteractive);
}

bool JobQueue::IsFull(Priority priority) const {
  return QueueOf(priority).fresh >= capacity_;
}

void JobQueue::Push(std::unique_ptr<ActiveJob> job) {
  PriorityQueue& queue = QueueOf(job->job.priority);
  queue.jobs.push_back(std::move(job));
  ++queue.fresh;
}

void JobQueue::PutBack(std::unique_ptr<ActiveJob> job) {
  QueueOf(job->job.priority).jobs.push_front(std::move(job));
}

JobQueue::PriorityQueue& JobQueue::ChooseQueue() {
  const bool batch_waits = size(Priority::kBatch) > 0;
  const Priority next =
      priority_turns_.Next(batch_waits, size(Priority::kInteractive) > 0);
  priority_turns_.Take(next, batch_waits);
  return QueueOf(next);
}

JobQueue::Jobs::iterator JobQueue::ChooseJob(PriorityQueue& queue) {
  const auto last_turn = [&queue](const std::unique_ptr<ActiveJob>& job) {
    const auto turn = queue.turns.find(job->job.client);
    return turn == queue.turns.end() ? 0 : turn->second;
  };
  return std::min_element(queue.jobs.begin(), queue.jobs.end(),
                          [&](const auto& a, const auto& b) {
                            return last_turn(a) < last_turn(b);
                          });
}

std::unique_ptr<ActiveJob> JobQueue::Pop() {
  PriorityQueue& queue = ChooseQueue();
  const auto chosen = ChooseJob(queue);
  std::unique_ptr<ActiveJob> job = std::move(*chosen);
  queue.jobs.erase(chosen);
  if (IsFresh(*job)) --queue.fresh;
  if (queue.jobs.empty()) queue.turns.clear();
  queue.turns[job->job.client] = next_turn_++;
  return job;
}

std::vector<std::unique_ptr<ActiveJob>> JobQueue::Remove(
    const std::function<bool(const Job&)>& is_chosen) {
  std::vector<std::unique_ptr<ActiveJob>> removed;
  for (PriorityQueue& queue : queues_) {
    const auto first = std::stable_partition(
        queue.jobs.begin(), queue.jobs.end(),
        [&](const auto& job) { return !is_chosen(job->job); });
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
  // Adds what `job` does in at most `turns` turns; returns how many it needs.
  const auto add = [&work](const ActiveJob& job, int64_t turns) {
    const int64_t taken = std::min(turns, job.run.slices_left());
    work += static_cast<double>(taken) * job.slice_time;
    return taken;
  };
  const PriorityQueue& queue = QueueOf(priority);
  int64_t own = slices;
  for (const auto& job : queue.jobs) {
    if (job->job.client == client) own += add(*job, job->run.slices_left());
  }
  // Nobody else has more turns than this client until then.
  absl::flat_hash_map<std::string, int64_t> others;
  int64_t turns = own;
  for (const auto& job : queue.jobs) {
    if (job->job.client == client) continue;
    int64_t& taken = others[job->job.client];
    const int64_t more = add(*job, own - taken);
    taken += more;
    turns += more;
  }
  const bool is_batch = priority == Priority::kBatch;
  int64_t share = is_batch ? turns * PriorityTurns::kInteractiveTurns
                           : turns / PriorityTurns::kInteractiveTurns;
  const PriorityQueue& rest =
      QueueOf(is_batch ? Priority::kInteractive : Priority::kBatch);
  for (const auto& job : rest.jobs) share -= add(*job, share);
  return work;
}

}  // namespace convgrad
