// A bounded queue in front of a fixed set of worker threads, each with cores of
// its own: backends never run on gRPC's threads.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "server/memory/call_memory.h"
#include "server/scheduling/job.h"
#include "server/scheduling/plan_cache.h"

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
    std::vector<Worker> workers;
    int threads_per_worker = 1;
    int queue_capacity = 1;
    std::function<absl::Time()> clock = absl::Now;
    // Told of every run that went well, on the worker's thread. May be null.
    std::function<void(const Job&, const RunTimes&)> on_run;
  };

  // Starts the workers. `plans` and `memory` outlive the scheduler.
  Scheduler(Options options, PlanCache* plans, CallMemory* memory);
  // Shutdown().
  ~Scheduler();

  // Takes the job; its `done` tells everything else, refusals too:
  // kResourceExhausted, reason BUSY, if the queue is full; kUnavailable, reason
  // DRAINING, after Drain or Shutdown.
  void Submit(Job job);

  // Ends the queued jobs that are cancelled or past their deadline, so that
  // what they hold is free before a worker gets to them. To be called
  // regularly.
  void DropDead();

  // Refuses new jobs and waits until the accepted ones are done, or `until`.
  // Returns whether all are.
  bool Drain(absl::Time until);

  // Refuses new jobs, ends the queued ones with kUnavailable, reason DRAINING,
  // and returns when the running ones are done. May be called again.
  void Shutdown();

  int queue_depth() const;
  // Of the jobs for `backend`.
  int queue_depth(const Backend& backend) const;
  int running() const;

 private:
  struct QueuedJob {
    Job job;
    absl::Time queued_at;
  };

  void Work(const Worker& worker);
  static bool Takes(const Worker& worker, const Job& job);
  // Returns when its client was served last; 0 for one that wasn't, lately.
  uint64_t LastTurnOf(const QueuedJob& queued) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the worker's next job: of the client that has waited longest for
  // its turn, the first; the queue's end if there is none for it.
  std::deque<QueuedJob>::iterator Choose(const Worker& worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for a job; returns false at shutdown.
  bool Next(const Worker& worker, QueuedJob* next);
  // Returns why `queued` needn't run: OK, cancelled or too late.
  absl::Status CheckAlive(const Job& job) const;
  // Runs the job and ends it.
  void Run(const Worker& worker, QueuedJob queued);
  absl::Status RunOnBackend(const Worker& worker, Job& job,
                            JobOutcome* outcome);
  absl::StatusOr<PlanCache::Lookup> LookUpPlan(const Worker& worker,
                                               const Job& job);
  absl::Status RunWithScratch(Job& job, const Plan& plan, JobOutcome* outcome);
  // The one place that ends a job.
  void End(const QueuedJob& queued, JobOutcome outcome);
  void EndUnrun(const std::deque<QueuedJob>& jobs, const absl::Status& why);

  const Options options_;
  PlanCache* const plans_;
  CallMemory* const memory_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<QueuedJob> queue_ ABSL_GUARDED_BY(mutex_);
  // The number of each client's last turn, since the queue was last empty.
  absl::flat_hash_map<std::string, uint64_t> turns_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_turn_ ABSL_GUARDED_BY(mutex_) = 1;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex join_mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace convgrad
