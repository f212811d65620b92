// `WorkerPool` counts the workers that take the same jobs, holds these jobs,
// and predicts how long they wait.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/scheduling/job_queue.h"

namespace convgrad {

// `WorkerPool` is thread-compatible.
class WorkerPool {
 public:
  // Makes a pool of one worker for each device of `backend`, or, if it is null,
  // of workers on cores for all backends without devices. `queue_capacity` is
  // the limit of each priority.
  WorkerPool(const Backend* backend, int queue_capacity)
      : backend_(backend), queue_(queue_capacity) {}

  // Returns the key of the pool that takes jobs of `backend`; null: workers on
  // cores.
  static const Backend* KeyOf(const Backend& backend) {
    return backend.device_count() > 0 ? &backend : nullptr;
  }

  void AddWorker() { ++workers_; }
  // Lets at most `workers` take jobs at once. Requires: workers on cores.
  void SetActive(int workers) { active_ = workers; }

  JobQueue& queue() { return queue_; }
  const JobQueue& queue() const { return queue_; }
  int running() const { return static_cast<int>(running_.size()); }
  // Returns whether all devices are lost.
  bool is_lost() const;

  // Returns whether the worker of `device` should take a job. Other devices
  // take the jobs of a lost one. If no device is left, any worker takes them,
  // and the backend returns an error.
  bool HasWorkFor(int device) const;

  // Dequeues the next job and counts it as running until Leave. Requires:
  // !queue().empty().
  std::unique_ptr<ActiveJob> Enter(absl::Time now);
  void Leave(const ActiveJob* job);

  // Returns the error that refuses a new job of `slices` slices, each of the
  // predicted time `slice_time` (see Scheduler::Prepare). Reads only the
  // priority, client and deadline of `job`.
  absl::Status CheckRoom(const Job& job, int64_t slices,
                         absl::Duration slice_time, absl::Time now) const;

  // Returns how long the workers need until they start the last of `slices`
  // slices of a new job with this priority and client.
  absl::Duration WaitFor(Priority priority, const std::string& client,
                         int64_t slices, absl::Time now) const;

 private:
  // A slice that a worker computes.
  struct RunningSlice {
    const ActiveJob* job;  // Only compared; it may be deleted.
    Priority priority;
    std::string client;
    absl::Time expected_end;
    // The predicted time of the job's other slices, which run before the
    // client's next job.
    absl::Duration rest;
  };

  // Returns the number of workers that take jobs at once: those whose device
  // isn't lost, at least 1.
  int UsefulWorkers() const;

  const Backend* const backend_;
  int workers_ = 0;
  int active_ = std::numeric_limits<int>::max();
  JobQueue queue_;
  std::vector<RunningSlice> running_;
};

}  // namespace convgrad
