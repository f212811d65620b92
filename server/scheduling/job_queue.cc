#include "server/scheduling/job_queue.h"

#include <algorithm>
#include <iterator>

namespace convgrad {
namespace {

bool IsFresh(const ActiveJob& job) { return !job.outcome.planned; }

}  // namespace

JobQueue::Lane& JobQueue::LaneOf(Priority priority) {
  return lanes_[static_cast<size_t>(priority)];
}

const JobQueue::Lane& JobQueue::LaneOf(Priority priority) const {
  return lanes_[static_cast<size_t>(priority)];
}

int JobQueue::size(Priority priority) const {
  return static_cast<int>(LaneOf(priority).jobs.size());
}

int JobQueue::size() const {
  return size(Priority::kBatch) + size(Priority::kInteractive);
}

bool JobQueue::IsFull(Priority priority) const {
  return LaneOf(priority).fresh >= capacity_;
}

void JobQueue::Push(std::unique_ptr<ActiveJob> job) {
  Lane& lane = LaneOf(job->job.priority);
  lane.jobs.push_back(std::move(job));
  ++lane.fresh;
}

void JobQueue::PutBack(std::unique_ptr<ActiveJob> job) {
  LaneOf(job->job.priority).jobs.push_front(std::move(job));
}

JobQueue::Lane& JobQueue::ChooseLane() {
  const bool batch_waits = size(Priority::kBatch) > 0;
  const Priority next =
      priority_turns_.Next(batch_waits, size(Priority::kInteractive) > 0);
  priority_turns_.Take(next, batch_waits);
  return LaneOf(next);
}

JobQueue::Jobs::iterator JobQueue::ChooseJob(Lane& lane) {
  const auto last_turn = [&lane](const std::unique_ptr<ActiveJob>& job) {
    const auto turn = lane.turns.find(job->job.client);
    return turn == lane.turns.end() ? 0 : turn->second;
  };
  return std::min_element(lane.jobs.begin(), lane.jobs.end(),
                          [&](const auto& a, const auto& b) {
                            return last_turn(a) < last_turn(b);
                          });
}

std::unique_ptr<ActiveJob> JobQueue::Pop() {
  Lane& lane = ChooseLane();
  const auto chosen = ChooseJob(lane);
  std::unique_ptr<ActiveJob> job = std::move(*chosen);
  lane.jobs.erase(chosen);
  if (IsFresh(*job)) --lane.fresh;
  if (lane.jobs.empty()) lane.turns.clear();
  lane.turns[job->job.client] = next_turn_++;
  return job;
}

std::vector<std::unique_ptr<ActiveJob>> JobQueue::Remove(
    const std::function<bool(const Job&)>& is_chosen) {
  std::vector<std::unique_ptr<ActiveJob>> removed;
  for (Lane& lane : lanes_) {
    const auto first = std::stable_partition(
        lane.jobs.begin(), lane.jobs.end(),
        [&](const auto& job) { return !is_chosen(job->job); });
    for (auto job = first; job != lane.jobs.end(); ++job) {
      if (IsFresh(**job)) --lane.fresh;
      removed.push_back(std::move(*job));
    }
    lane.jobs.erase(first, lane.jobs.end());
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
  const Lane& lane = LaneOf(priority);
  int64_t own = slices;
  for (const auto& job : lane.jobs) {
    if (job->job.client == client) own += add(*job, job->run.slices_left());
  }
  // Nobody else has more turns than this client until then.
  absl::flat_hash_map<std::string, int64_t> others;
  int64_t turns = own;
  for (const auto& job : lane.jobs) {
    if (job->job.client == client) continue;
    int64_t& taken = others[job->job.client];
    const int64_t more = add(*job, own - taken);
    taken += more;
    turns += more;
  }
  const bool is_batch = priority == Priority::kBatch;
  int64_t share = is_batch ? turns * PriorityTurns::kInteractiveTurns
                           : turns / PriorityTurns::kInteractiveTurns;
  const Lane& rest =
      LaneOf(is_batch ? Priority::kInteractive : Priority::kBatch);
  for (const auto& job : rest.jobs) share -= add(*job, share);
  return work;
}

}  // namespace convgrad
