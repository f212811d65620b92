// Bounded queues in front of a fixed set of worker threads, each with cores of
// its own: backends never run on gRPC's threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/memory/call_memory.h"
#include "server/scheduling/job.h"
#include "server/scheduling/plan_cache.h"
#include "server/scheduling/work_rates.h"
#include "server/scheduling/worker_pool.h"

namespace convgrad {

// Returns kUnavailable, reason DRAINING: what a server that is going away says.
absl::Status DrainingError();

// Thread-safe.
class Scheduler {
 public:
  // One worker.
  struct Worker {
    // That it is pinned to. Empty: it isn't.
    std::vector<int> cores;
    // Takes the jobs of this backend's device alone; null: those of all
    // backends without devices.
    const Backend* backend = nullptr;
    int device = 0;
  };

  struct Options {
    // Those of a backend with devices have one for each device.
    std::vector<Worker> workers;
    int threads_per_worker = 1;
    // Of each priority; those of cores and of each backend's devices count for
    // themselves.
    int queue_capacity = 1;
    std::function<absl::Time()> clock = absl::Now;
  };

  // Starts the workers. `plans`, `memory` and `weights` outlive the scheduler;
  // without `weights` none is kept.
  Scheduler(Options options, PlanCache* plans, CallMemory* memory,
            WeightCache* weights = nullptr);
  // Shutdown().
  ~Scheduler();

  // Returns the job as the scheduler keeps it, with what is known of its work.
  // Only its operation and backend need be there by now: what else it has may
  // be set until Submit.
  std::unique_ptr<ActiveJob> Prepare(Job job) const;

  // Returns the plan that a deterministic job of `operation` will have, made
  // now if it isn't there. For backends without devices. Slow then (up to a
  // second for a network).
  // Errors: those of Backend::MakePlan.
  absl::StatusOr<std::shared_ptr<const Plan>> PlanFor(
      const Backend& backend, const Operation& operation) const;

  // Returns why Submit would refuse the job now.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED, if by what was measured
  // its work takes more than twice the time that is left to it; BUSY, if the
  // queue of its priority is full, or it would end too late for the work before
  // it. A server with a free worker isn't busy. kUnavailable, reason DRAINING,
  // after Drain or Shutdown.
  absl::Status CheckRoom(const ActiveJob& active) const;

  // As CheckRoom, for a call whose message hasn't been read: refuses what would
  // be BUSY however little it wants, or DRAINING.
  absl::Status CheckArrival(Priority priority, const std::string& client,
                            absl::Time deadline) const;

  // Takes the job; its `done` tells everything else, refusals too: those of
  // CheckRoom.
  void Submit(std::unique_ptr<ActiveJob> active);
  void Submit(Job job) { Submit(Prepare(std::move(job))); }

  // Ends the queued jobs that are cancelled or past their deadline, so that
  // what they hold is free before a worker gets to them. To be called
  // regularly.
  void DropDead();

  // Refuses new jobs, ends the queued ones and those with slices left with
  // kUnavailable, reason DRAINING, and returns when the running slices are
  // done. May be called again.
  void Shutdown();

  int queue_depth(Priority priority) const;
  // Of the jobs for the devices of `backend`; all others' if it has none.
  int queue_depth(const Backend& backend) const;
  int running() const;
  // Returns how long a client that has no jobs here would wait for its first
  // turn, where that is longest.
  absl::Duration EstimatedWait(Priority priority) const;

 private:
  void Work(const Worker& worker);
  // Waits for a job and counts it as running; returns null at shutdown.
  std::unique_ptr<ActiveJob> Next(const Worker& worker);
  // Ends that, and takes back `job` if it has slices left.
  void Leave(const Worker& worker, const ActiveJob* running,
             std::unique_ptr<ActiveJob> job);
  // Returns why `job` needn't run: OK, cancelled or too late.
  absl::Status CheckAlive(const Job& job) const;
  absl::Status CheckRoomLocked(const ActiveJob& active) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the pool that takes jobs of `backend`.
  WorkerPool& PoolFor(const Backend& backend)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const WorkerPool& PoolFor(const Backend& backend) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes from all queues the jobs that `is_chosen` chooses.
  std::vector<std::unique_ptr<ActiveJob>> Remove(
      const std::function<bool(const Job&)>& is_chosen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsStopping() const;
  absl::Status RunSlice(const Worker& worker, ActiveJob& active);
  // The one place that ends a job.
  static void End(ActiveJob& active, absl::Status status);
  void EndUnrun(const std::vector<std::unique_ptr<ActiveJob>>& jobs,
                const absl::Status& why);

  const Options options_;
  const WorkMeans means_;
  WorkRates rates_;
  mutable Mutex mutex_;
  CondVar changed_;
  // By WorkerPool::KeyOf.
  std::map<const Backend*, WorkerPool> pools_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex join_mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace convgrad
