#include "server/scheduling/worker_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// A prediction may be wrong by this factor before it refuses a job for good.
constexpr int kPredictionError = 2;

// An estimate is a mean, so half of the jobs that it calls just in time are
// late and would be computed for nothing.
constexpr double kHeadroom = 1.5;

// Only jobs that take longer are refused by an estimate. A shorter job may run
// into its deadline.
constexpr absl::Duration kLeastSaving = absl::Milliseconds(50);

std::string Text(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

// Returns the error for a job that takes `own` alone and has only `left`.
absl::Status TooLong(absl::Duration own, absl::Duration left) {
  return LimitExceeded("deadline", absl::StrCat("in ", Text(left)),
                       absl::StrCat("time for some ", Text(own), " of work"));
}

}  // namespace

bool WorkerPool::is_lost() const {
  return backend_ != nullptr && IsLost(*backend_);
}

bool WorkerPool::HasWorkFor(int device) const {
  if (queue_.empty()) return false;
  if (backend_ == nullptr) return running() < active_;
  return !backend_->IsLost(device) || is_lost();
}

int WorkerPool::UsefulWorkers() const {
  if (backend_ == nullptr) return std::min(workers_, active_);
  int useful = workers_;
  for (int device = 0; device < backend_->device_count(); ++device) {
    if (backend_->IsLost(device)) --useful;
  }
  return std::max(useful, 1);
}

std::unique_ptr<ActiveJob> WorkerPool::Enter(absl::Time now) {
  std::unique_ptr<ActiveJob> job = queue_.Pop();
  const double others = static_cast<double>(job->slices_left() - 1);
  running_.push_back({job.get(), job->job.priority, job->job.client,
                      now + job->slice_time, others * job->slice_time});
  return job;
}

void WorkerPool::Leave(const ActiveJob* job) {
  running_.erase(std::find_if(
      running_.begin(), running_.end(),
      [&](const RunningSlice& slice) { return slice.job == job; }));
}

absl::Status WorkerPool::CheckRoom(const Job& job, int64_t slices,
                                   absl::Duration slice_time,
                                   absl::Time now) const {
  const absl::Duration own = static_cast<double>(slices) * slice_time;
  const absl::Duration left = job.deadline - now;
  if (own > std::max(kPredictionError * left, kLeastSaving)) {
    return TooLong(own, left);
  }
  if (queue_.IsFull(job.priority, job.client)) {
    return Busy("server.queue", absl::StrCat(queue_.capacity(), " jobs queued"),
                absl::StrCat("fewer than ", queue_.capacity(),
                             ", or none of this client"));
  }
  if (queue_.empty() && running() < UsefulWorkers()) return absl::OkStatus();
  const absl::Duration wait = WaitFor(job.priority, job.client, slices, now);
  const bool is_late = kHeadroom * (wait + own) > std::max(left, kLeastSaving);
  if (!is_late || wait == absl::ZeroDuration()) return absl::OkStatus();
  return Busy("server.queue",
              absl::StrCat("some ", Text(wait), " of work before it"),
              absl::StrCat("its own ", Text(own), ", too, well within ",
                           Text(left), ", its deadline"));
}

absl::Duration WorkerPool::WaitFor(Priority priority, const std::string& client,
                                   int64_t slices, absl::Time now) const {
  absl::Duration work = queue_.WorkBefore(priority, client, slices);
  for (const RunningSlice& running : running_) {
    work += std::max(running.expected_end - now, absl::ZeroDuration());
    const bool is_own =
        running.priority == priority && running.client == client;
    if (is_own) work += running.rest;
  }
  return work / UsefulWorkers();
}

}  // namespace convgrad
