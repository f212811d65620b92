// `Scheduler` queues jobs for a fixed set of worker threads and ends each job
// exactly once. Each worker has cores of its own, because backends never
// compute on gRPC's threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "backends/core/steady_now.h"
#include "server/memory/call_memory.h"
#include "server/scheduling/job.h"
#include "server/scheduling/plan_cache.h"
#include "server/scheduling/work_rates.h"
#include "server/scheduling/worker_pool.h"

namespace convgrad {

// Returns the error of a server that stops: kUnavailable, reason DRAINING.
absl::Status DrainingError();

// `Scheduler` is thread-safe.
class Scheduler {
 public:
  // A worker thread.
  struct Worker {
    // The cores that the worker is pinned to; empty: not pinned.
    std::vector<int> cores;
    // The backend whose `device` the worker computes on. Null: the worker
    // computes on cores for all backends without devices.
    const Backend* backend = nullptr;
    int device = 0;
  };

  struct Options {
    // One worker for each device of a backend, and the workers on cores.
    std::vector<Worker> workers;
    int threads_per_worker = 1;
    // Jobs of each priority in each WorkerPool.
    int queue_capacity = 1;
    std::function<absl::Time()> clock = SteadyNow;
  };

  // Starts the workers. `plans`, `memory` and `weights` outlive the scheduler.
  // A null `weights` means no cache.
  Scheduler(Options options, PlanCache* plans, CallMemory* memory,
            WeightCache* weights = nullptr);
  // Calls Shutdown.
  ~Scheduler();

  // Returns the job, cut into slices and ready for Submit. A caller that gets
  // an error takes no memory for the job. Requires: the job's operation,
  // backend, priority, client and deadline. The caller may set its other fields
  // until Submit. No job is BUSY while a worker is free. Errors:
  // kResourceExhausted, reason LIMIT_EXCEEDED, if the predicted time of the job
  // is more than twice the time to its deadline; reason BUSY, if the queue of
  // its priority is full for its client (JobQueue::IsFull) or the work before
  // it would make it late; kUnavailable, reason DRAINING, after Drain or
  // Shutdown.
  absl::StatusOr<std::unique_ptr<ActiveJob>> Prepare(Job job) const;

  // Returns the plan that a job of `operation` will use if the cache has it,
  // otherwise null. Requires: a backend without devices.
  std::shared_ptr<const Plan> FindPlan(const Backend& backend,
                                       const Operation& operation) const;
  // Returns this plan, and makes it if the cache lacks it, which takes a second
  // for a network, and longer for one of thousands of steps. Requires: a
  // backend without devices. Errors: those of PlanCache::Get.
  absl::StatusOr<std::shared_ptr<const Plan>> MakePlan(
      const Backend& backend, const Operation& operation) const;

  // Returns the error of Prepare for a call whose message isn't read yet, if
  // even the smallest job would be BUSY or DRAINING.
  absl::Status CheckArrival(Priority priority, const std::string& client,
                            absl::Time deadline) const;

  // Queues the job. `done` gets the outcome, or the error that Prepare would
  // return now.
  void Submit(std::unique_ptr<ActiveJob> active);
  void Submit(Job job) {
    Submit(std::make_unique<ActiveJob>(std::move(job), means_));
  }

  // Ends the queued jobs that are cancelled or past their deadline, so that
  // their memory is freed before a worker takes them. Call it regularly.
  void DropDead();

  // Lets at most `workers` of those on cores take jobs at once. Running slices
  // aren't interrupted. Requires: workers >= 1.
  void SetActiveWorkers(int workers);

  // Refuses new jobs, and ends queued jobs and jobs with slices left with
  // kUnavailable, reason DRAINING. Blocks until the running slices have ended.
  // May be called again.
  void Shutdown();

  int queue_depth(Priority priority) const;
  // Returns the number of queued jobs for the devices of `backend`, or for
  // workers on cores if the backend has no devices.
  int queue_depth(const Backend& backend) const;
  int running() const;
  // Returns how long a client without jobs would wait until a worker takes its
  // first job, in the pool with the longest wait.
  absl::Duration EstimatedWait(Priority priority) const;

 private:
  // Computes a slice of a job after the other, until the shutdown.
  void Work(const Worker& worker);
  // Returns the error that refuses the job now (see Prepare).
  absl::Status CheckRoom(const ActiveJob& active) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the jobs that `is_chosen` chooses from all queues.
  std::vector<std::unique_ptr<ActiveJob>> Remove(
      const std::function<bool(const ActiveJob&)>& is_chosen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsStopping() const;
  void EndUnrun(const std::vector<std::unique_ptr<ActiveJob>>& jobs,
                const absl::Status& why);

  const Options options_;
  WorkRates rates_;
  const WorkMeans means_;
  mutable Mutex mutex_;
  CondVar changed_;
  // By WorkerPool::KeyOf.
  std::map<const Backend*, WorkerPool> pools_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex join_mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace convgrad
