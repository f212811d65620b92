#include "server/scheduling/scheduler.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "backends/core/status.h"
#include "server/scheduling/pin_thread.h"

namespace convgrad {
absl::Status DrainingError() {
  return MakeError(absl::StatusCode::kUnavailable,
                   {Reason::kDraining, "server", "a server that is going away",
                    "another one; retry there"});
}

Scheduler::Scheduler(Options options, PlanCache* plans, CallMemory* memory,
                     WeightCache* weights)
    : options_(std::move(options)),
      rates_(options_.clock),
      means_{plans,          memory, &rates_, options_.threads_per_worker,
             options_.clock, weights} {
  MutexLock lock(&mutex_);
  for (const Worker& worker : options_.workers) {
    pools_.try_emplace(worker.backend, worker.backend, options_.queue_capacity)
        .first->second.AddWorker();
  }
  MutexLock join_lock(&join_mutex_);
  for (const Worker& worker : options_.workers) {
    threads_.emplace_back([this, &worker] { Work(worker); });
  }
}

Scheduler::~Scheduler() { Shutdown(); }

std::shared_ptr<const Plan> Scheduler::FindPlan(
    const Backend& backend, const Operation& operation) const {
  return means_.plans->Find(backend, operation, {.threads = means_.threads});
}

absl::StatusOr<std::shared_ptr<const Plan>> Scheduler::MakePlan(
    const Backend& backend, const Operation& operation) const {
  ASSIGN_OR_RETURN(
      PlanCache::Lookup lookup,
      means_.plans->Get(backend, operation, {.threads = means_.threads}));
  return std::move(lookup.plan);
}

absl::StatusOr<std::unique_ptr<ActiveJob>> Scheduler::Prepare(Job job) const {
  auto active = std::make_unique<ActiveJob>(std::move(job), means_);
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckRoom(*active));
  return active;
}

absl::Status Scheduler::CheckRoom(const ActiveJob& active) const {
  if (stopping_) return DrainingError();
  if (active.job.continues) return absl::OkStatus();
  return pools_.at(WorkerPool::KeyOf(*active.job.backend))
      .CheckRoom(active.job, active.slices_left(), active.slice_time,
                 options_.clock());
}

void Scheduler::Submit(std::unique_ptr<ActiveJob> active) {
  active->outcome.submitted = active->queued_at = options_.clock();
  absl::Status refusal = active->CheckAlive();
  if (refusal.ok()) {
    MutexLock lock(&mutex_);
    refusal = CheckRoom(*active);
    if (refusal.ok()) {
      WorkerPool& pool = pools_.at(WorkerPool::KeyOf(*active->job.backend));
      pool.queue().Push(std::move(active));
      changed_.NotifyAll();
      return;
    }
  }
  const std::optional<ErrorDetail> detail = DetailOf(refusal);
  active->outcome.no_room = detail && detail->reason == Reason::kBusy;
  active->End(std::move(refusal));
}

absl::Status Scheduler::CheckArrival(Priority priority,
                                     const std::string& client,
                                     absl::Time deadline) const {
  Job job;
  job.priority = priority;
  job.client = client;
  job.deadline = deadline;
  MutexLock lock(&mutex_);
  if (stopping_) return DrainingError();
  // The pool isn't known before the message is read, so one pool with room
  // suffices.
  absl::Status room;
  for (const auto& [key, pool] : pools_) {
    if (pool.is_lost()) continue;
    room = pool.CheckRoom(job, 1, absl::ZeroDuration(), options_.clock());
    if (room.ok()) break;
  }
  return room;
}

void Scheduler::Work(const Worker& worker) {
  PinThisThread(worker.cores);
  while (true) {
    std::unique_ptr<ActiveJob> job;
    {
      MutexLock lock(&mutex_);
      WorkerPool& pool = pools_.at(worker.backend);
      while (!pool.HasWorkFor(worker.device) && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (pool.queue().empty()) return;
      job = pool.Enter(options_.clock());
    }
    const ActiveJob* const running = job.get();
    absl::Status status;
    // The server's code doesn't throw, but a library or an allocation may. One
    // job must not end the server.
    try {
      status = job->RunSlice(worker.device);
    } catch (const std::exception& error) {
      status = MakeError(
          absl::StatusCode::kInternal,
          {Reason::kInternal, "backend", error.what(), "no exception"});
    }
    if (status.ok() && job->slices_left() > 0 && IsStopping()) {
      status = DrainingError();
    }
    if (!status.ok() || job->slices_left() == 0) {
      job->End(std::move(status));
      job.reset();
    }
    MutexLock lock(&mutex_);
    WorkerPool& pool = pools_.at(worker.backend);
    // `running` is only compared, never dereferenced.
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete)
    pool.Leave(running);
    if (job != nullptr) {
      job->queued_at = options_.clock();
      pool.queue().PutBack(std::move(job));
    }
    changed_.NotifyAll();
  }
}

bool Scheduler::IsStopping() const {
  MutexLock lock(&mutex_);
  return stopping_;
}

void Scheduler::EndUnrun(const std::vector<std::unique_ptr<ActiveJob>>& jobs,
                         const absl::Status& why) {
  for (const std::unique_ptr<ActiveJob>& job : jobs) {
    job->outcome.queue += options_.clock() - job->queued_at;
    job->End(why.ok() ? job->CheckAlive() : why);
  }
}

void Scheduler::DropDead() {
  std::vector<std::unique_ptr<ActiveJob>> dead;
  {
    MutexLock lock(&mutex_);
    dead = Remove([](const ActiveJob& job) { return !job.CheckAlive().ok(); });
    if (!dead.empty()) changed_.NotifyAll();
  }
  EndUnrun(dead, absl::OkStatus());
}

void Scheduler::SetActiveWorkers(int workers) {
  MutexLock lock(&mutex_);
  const auto pool = pools_.find(nullptr);
  if (pool != pools_.end()) pool->second.SetActive(workers);
  changed_.NotifyAll();
}

void Scheduler::Shutdown() {
  std::vector<std::unique_ptr<ActiveJob>> left;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    left = Remove([](const ActiveJob&) { return true; });
    changed_.NotifyAll();
  }
  EndUnrun(left, DrainingError());
  MutexLock lock(&join_mutex_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::vector<std::unique_ptr<ActiveJob>> Scheduler::Remove(
    const std::function<bool(const ActiveJob&)>& is_chosen) {
  std::vector<std::unique_ptr<ActiveJob>> removed;
  for (auto& [key, pool] : pools_) {
    for (auto& job : pool.queue().Remove(is_chosen)) {
      removed.push_back(std::move(job));
    }
  }
  return removed;
}

int Scheduler::queue_depth(Priority priority) const {
  MutexLock lock(&mutex_);
  int depth = 0;
  for (const auto& [key, pool] : pools_) depth += pool.queue().size(priority);
  return depth;
}

int Scheduler::queue_depth(const Backend& backend) const {
  MutexLock lock(&mutex_);
  return pools_.at(WorkerPool::KeyOf(backend)).queue().size();
}

int Scheduler::running() const {
  MutexLock lock(&mutex_);
  int running = 0;
  for (const auto& [key, pool] : pools_) running += pool.running();
  return running;
}

absl::Duration Scheduler::EstimatedWait(Priority priority) const {
  MutexLock lock(&mutex_);
  const absl::Time now = options_.clock();
  absl::Duration wait;
  for (const auto& [key, pool] : pools_) {
    wait = std::max(wait, pool.WaitFor(priority, "", 1, now));
  }
  return wait;
}

}  // namespace convgrad
