// The workers that take the same jobs, those jobs, and how long they wait.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/scheduling/job_queue.h"

namespace convgrad {

// Thread-compatible.
class WorkerPool {
 public:
  // Of a worker for each device of `backend`; null: of workers on cores, for
  // all backends without devices. `queue_capacity` is each priority's.
  WorkerPool(const Backend* backend, int queue_capacity)
      : backend_(backend), queue_(queue_capacity) {}

  // Returns the pool that takes jobs of `backend`: null for that on cores.
  static const Backend* KeyOf(const Backend& backend) {
    return backend.device_count() > 0 ? &backend : nullptr;
  }

  void AddWorker() { ++workers_; }

  JobQueue& queue() { return queue_; }
  const JobQueue& queue() const { return queue_; }
  int running() const { return static_cast<int>(running_.size()); }
  // Returns whether all devices are.
  bool is_lost() const;

  // Returns whether the worker of `device` should take a job. What a lost
  // device leaves goes to the others; with none left, any worker hears from the
  // backend what to answer.
  bool HasWorkFor(int device) const;

  // Removes the job whose turn it is from the queue: a slice of it is on a
  // worker from now until Leave. Requires: !queue().empty().
  std::unique_ptr<ActiveJob> Enter(absl::Time now);
  void Leave(const ActiveJob* job);

  // Returns why a new job is refused: see Scheduler::CheckRoom.
  absl::Status CheckRoom(const ActiveJob& active, absl::Time now) const;

  // Returns OK, or BUSY for a new job like `job` of `slices` that take `own`:
  // only its priority, client and deadline count.
  absl::Status CheckQueue(const Job& job, int64_t slices, absl::Duration own,
                          absl::Time now) const;

  // Returns what the workers, all together, have to do before the last of
  // `slices` turns of a new job like that.
  absl::Duration WaitFor(Priority priority, const std::string& client,
                         int64_t slices, absl::Time now) const;

 private:
  // A slice that is on a worker.
  struct RunningSlice {
    const ActiveJob* job;  // perhaps gone already
    Priority priority;
    std::string client;
    absl::Time expected_end;
    // What its job's other slices will take, those of the same client's next
    // job have to wait for.
    absl::Duration rest;
  };

  // Returns how many there are without those of lost devices; at least 1.
  int UsefulWorkers() const;

  const Backend* const backend_;
  int workers_ = 0;
  JobQueue queue_;
  std::vector<RunningSlice> running_;
};

}  // namespace convgrad
