#include "server/scheduling/scheduler.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/scheduling/pin_thread.h"

namespace convgrad {
namespace {

// Share of the calls' memory that timing a plan may take for a moment.
constexpr int64_t kTimingShare = 4;

}  // namespace

absl::Status DrainingError() {
  return MakeError(absl::StatusCode::kUnavailable,
                   {Reason::kDraining, "server", "a server that is going away",
                    "another one; retry there"});
}

Scheduler::Scheduler(Options options, PlanCache* plans, CallMemory* memory)
    : options_(std::move(options)), plans_(plans), memory_(memory) {
  MutexLock lock(&join_mutex_);
  for (const Worker& worker : options_.workers) {
    threads_.emplace_back([this, &worker] { Work(worker); });
  }
}

Scheduler::~Scheduler() { Shutdown(); }

void Scheduler::Submit(Job job) {
  QueuedJob queued{std::move(job), options_.clock()};
  absl::Status refusal = CheckAlive(queued.job);
  if (refusal.ok()) {
    MutexLock lock(&mutex_);
    if (refusing_) {
      refusal = DrainingError();
    } else if (static_cast<int>(queue_.size()) >= options_.queue_capacity) {
      refusal =
          MakeError(absl::StatusCode::kResourceExhausted,
                    {Reason::kBusy, "server.queue",
                     absl::StrCat(queue_.size(), " jobs queued"),
                     absl::StrCat("fewer than ", options_.queue_capacity)});
    } else {
      queue_.push_back(std::move(queued));
      changed_.NotifyAll();
      return;
    }
  }
  JobOutcome outcome;
  outcome.status = std::move(refusal);
  End(queued, std::move(outcome));
}

absl::Status Scheduler::CheckAlive(const Job& job) const {
  if (job.cancelled != nullptr && job.cancelled->load()) {
    return MakeError(
        absl::StatusCode::kCancelled,
        {Reason::kCancelled, "call", "cancelled by its client", ""});
  }
  if (job.deadline <= options_.clock()) {
    return MakeError(
        absl::StatusCode::kDeadlineExceeded,
        {Reason::kDeadline, "deadline", "passed before the work", ""});
  }
  return absl::OkStatus();
}

// What a lost device leaves goes to the others; with none left, any worker
// hears from the backend what to answer.
bool Scheduler::Takes(const Worker& worker, const Job& job) {
  if (job.backend->device_count() == 0) return worker.backend == nullptr;
  if (worker.backend != job.backend) return false;
  return !job.backend->IsLost(worker.device) || IsLost(*job.backend);
}

void Scheduler::Work(const Worker& worker) {
  PinThisThread(worker.cores);
  QueuedJob next;
  while (Next(worker, &next)) {
    Run(worker, std::move(next));
    MutexLock lock(&mutex_);
    --running_;
    changed_.NotifyAll();
  }
}

bool Scheduler::Next(const Worker& worker, QueuedJob* next) {
  MutexLock lock(&mutex_);
  auto chosen = Choose(worker);
  while (chosen == queue_.end() && !stopping_) {
    changed_.Wait(&mutex_);
    chosen = Choose(worker);
  }
  if (chosen == queue_.end()) return false;
  turns_[chosen->job.client] = next_turn_++;
  *next = std::move(*chosen);
  queue_.erase(chosen);
  if (queue_.empty()) turns_.clear();
  ++running_;
  return true;
}

uint64_t Scheduler::LastTurnOf(const QueuedJob& queued) const {
  const auto turn = turns_.find(queued.job.client);
  return turn == turns_.end() ? 0 : turn->second;
}

std::deque<Scheduler::QueuedJob>::iterator Scheduler::Choose(
    const Worker& worker) {
  auto chosen = queue_.end();
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if (!Takes(worker, it->job)) continue;
    if (chosen == queue_.end() || LastTurnOf(*it) < LastTurnOf(*chosen)) {
      chosen = it;
    }
  }
  return chosen;
}

void Scheduler::Run(const Worker& worker, QueuedJob queued) {
  JobOutcome outcome;
  outcome.queue = options_.clock() - queued.queued_at;
  outcome.status = CheckAlive(queued.job);
  if (outcome.status.ok()) {
    // Nothing of ours throws, but a library or an allocation may, and one job
    // must not take the server down.
    try {
      outcome.status = RunOnBackend(worker, queued.job, &outcome);
    } catch (const std::exception& error) {
      outcome.status = MakeError(
          absl::StatusCode::kInternal,
          {Reason::kInternal, "backend", error.what(), "no exception"});
    }
  }
  End(queued, std::move(outcome));
}

absl::Status Scheduler::RunOnBackend(const Worker& worker, Job& job,
                                     JobOutcome* outcome) {
  const absl::Time start = options_.clock();
  outcome->planned = true;
  absl::StatusOr<PlanCache::Lookup> lookup = LookUpPlan(worker, job);
  outcome->plan = options_.clock() - start;
  RETURN_IF_ERROR(lookup.status());
  outcome->plan_cache_hit = lookup->hit;
  outcome->implementation = std::string(lookup->plan->implementation());
  RETURN_IF_ERROR(RunWithScratch(job, *lookup->plan, outcome));
  if (options_.on_run) options_.on_run(job, outcome->run);
  ASSIGN_OR_RETURN(outcome->findings,
                   Inspect(job.inspection, *job.backend, job.operation,
                           {.threads = options_.threads_per_worker,
                            .deterministic = job.deterministic,
                            .device = worker.device},
                           job.buffers, memory_));
  return absl::OkStatus();
}

absl::StatusOr<PlanCache::Lookup> Scheduler::LookUpPlan(const Worker& worker,
                                                        const Job& job) {
  PlanOptions options{.threads = options_.threads_per_worker,
                      .deterministic = job.deterministic,
                      .device = worker.device};
  absl::StatusOr<Reservation> reservation = Reservation();
  if (!job.deterministic) {
    const int64_t bytes = memory_->budget.capacity_bytes() / kTimingShare;
    reservation = memory_->budget.TryReserve(bytes);
    // A server that is short of memory plans without timing.
    if (reservation.ok()) options.timing_bytes = bytes;
  }
  return plans_->Get(*job.backend, job.operation, options);
}

absl::Status Scheduler::RunWithScratch(Job& job, const Plan& plan,
                                       JobOutcome* outcome) {
  // From the pool for every job: that costs one lock, keeps warm memory, and
  // makes an idle server hold nothing.
  const int64_t unpaid =
      BufferPool::CapacityFor(plan.scratch_bytes()) - job.prepaid_scratch_bytes;
  ASSIGN_OR_RETURN(Reservation reservation,
                   memory_->budget.TryReserve(std::max<int64_t>(unpaid, 0)));
  ASSIGN_OR_RETURN(Buffer scratch, memory_->pool.Take(plan.scratch_bytes()));
  job.buffers.scratch = absl::MakeSpan(scratch.data(), scratch.size());
  ASSIGN_OR_RETURN(outcome->run, plan.Run(job.buffers));
  return absl::OkStatus();
}

void Scheduler::End(const QueuedJob& queued, JobOutcome outcome) {
  queued.job.done(std::move(outcome));
}

void Scheduler::EndUnrun(const std::deque<QueuedJob>& jobs,
                         const absl::Status& why) {
  for (const QueuedJob& queued : jobs) {
    JobOutcome outcome;
    outcome.queue = options_.clock() - queued.queued_at;
    outcome.status = why.ok() ? CheckAlive(queued.job) : why;
    End(queued, std::move(outcome));
  }
}

void Scheduler::DropDead() {
  std::deque<QueuedJob> dead;
  {
    MutexLock lock(&mutex_);
    std::deque<QueuedJob> alive;
    for (QueuedJob& queued : queue_) {
      (CheckAlive(queued.job).ok() ? alive : dead).push_back(std::move(queued));
    }
    queue_ = std::move(alive);
    if (!dead.empty()) changed_.NotifyAll();
  }
  EndUnrun(dead, absl::OkStatus());
}

bool Scheduler::Drain(absl::Time until) {
  MutexLock lock(&mutex_);
  refusing_ = true;
  while (!queue_.empty() || running_ > 0) {
    if (changed_.WaitUntil(&mutex_, until)) break;
  }
  return queue_.empty() && running_ == 0;
}

void Scheduler::Shutdown() {
  std::deque<QueuedJob> left;
  {
    MutexLock lock(&mutex_);
    refusing_ = true;
    stopping_ = true;
    left.swap(queue_);
    changed_.NotifyAll();
  }
  EndUnrun(left, DrainingError());
  MutexLock lock(&join_mutex_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

int Scheduler::queue_depth() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(queue_.size());
}

int Scheduler::queue_depth(const Backend& backend) const {
  MutexLock lock(&mutex_);
  return static_cast<int>(std::count_if(
      queue_.begin(), queue_.end(),
      [&](const QueuedJob& queued) { return queued.job.backend == &backend; }));
}

int Scheduler::running() const {
  MutexLock lock(&mutex_);
  return running_;
}

}  // namespace convgrad
