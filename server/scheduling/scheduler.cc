#include "server/scheduling/scheduler.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/scheduling/pin_thread.h"

namespace convgrad {
namespace {

// How far a prediction may be off before it refuses a job for good.
constexpr int kPredictionError = 2;

// An estimate is a mean: of what it says is just in time, half is late, and was
// computed for nobody.
constexpr double kHeadroom = 1.5;

// Refusals by estimate are for what would cost more than that: a job that is
// over sooner is left to its deadline.
constexpr absl::Duration kLeastSaving = absl::Milliseconds(50);

std::string Text(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

// A job alone would take `own`, and has `left`.
absl::Status TooLong(absl::Duration own, absl::Duration left) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kLimitExceeded, "deadline", absl::StrCat("in ", Text(left)),
       absl::StrCat("time for some ", Text(own), " of work")});
}

absl::Status Busy(std::string found, std::string expected) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kBusy, "server.queue", std::move(found), std::move(expected)});
}

}  // namespace

absl::Status DrainingError() {
  return MakeError(absl::StatusCode::kUnavailable,
                   {Reason::kDraining, "server", "a server that is going away",
                    "another one; retry there"});
}

Scheduler::Scheduler(Options options, PlanCache* plans, CallMemory* memory,
                     WeightCache* weights)
    : options_(std::move(options)),
      means_{plans, memory, options_.threads_per_worker, options_.clock,
             weights},
      rates_(options_.clock),
      queue_(options_.queue_capacity) {
  MutexLock lock(&join_mutex_);
  for (const std::vector<int>& cores : options_.worker_cores) {
    workers_.emplace_back([this, &cores] { Work(cores); });
  }
}

Scheduler::~Scheduler() { Shutdown(); }

absl::Status Scheduler::CheckRoom(const Job& job) const {
  ActiveJob active(job, means_);
  active.slice_time = rates_.Predict(active.work);
  MutexLock lock(&mutex_);
  return CheckRoom(active);
}

void Scheduler::Submit(Job job) {
  auto active = std::make_unique<ActiveJob>(std::move(job), means_);
  active->queued_at = options_.clock();
  active->slice_time = rates_.Predict(active->work);
  absl::Status refusal = CheckAlive(active->job);
  if (refusal.ok()) {
    MutexLock lock(&mutex_);
    refusal = CheckRoom(*active);
    if (refusal.ok()) {
      queue_.Push(std::move(active));
      changed_.NotifyAll();
      return;
    }
  }
  End(*active, std::move(refusal));
}

absl::Status Scheduler::CheckRoom(const ActiveJob& active) const {
  if (refusing_) return DrainingError();
  const Job& job = active.job;
  const int64_t slices = active.run.slices_left();
  const absl::Duration own = static_cast<double>(slices) * active.slice_time;
  const absl::Duration left = job.deadline - options_.clock();
  if (own > std::max(kPredictionError * left, kLeastSaving)) {
    return TooLong(own, left);
  }
  return CheckQueue(job, slices, own);
}

absl::Status Scheduler::CheckArrival(Priority priority,
                                     const std::string& client,
                                     absl::Time deadline) const {
  Job job;
  job.priority = priority;
  job.client = client;
  job.deadline = deadline;
  MutexLock lock(&mutex_);
  if (refusing_) return DrainingError();
  return CheckQueue(job, 1, absl::ZeroDuration());
}

absl::Status Scheduler::CheckQueue(const Job& job, int64_t slices,
                                   absl::Duration own) const {
  if (queue_.IsFull(job.priority)) {
    return Busy(absl::StrCat(queue_.capacity(), " jobs queued"),
                absl::StrCat("fewer than ", queue_.capacity()));
  }
  if (queue_.empty() && running_.size() < options_.worker_cores.size()) {
    return absl::OkStatus();
  }
  const absl::Duration left = job.deadline - options_.clock();
  const absl::Duration wait = WaitFor(job.priority, job.client, slices);
  const bool is_late = kHeadroom * (wait + own) > std::max(left, kLeastSaving);
  if (!is_late || wait == absl::ZeroDuration()) return absl::OkStatus();
  return Busy(absl::StrCat("some ", Text(wait), " of work before it"),
              absl::StrCat("its own ", Text(own), ", too, well within ",
                           Text(left), ", its deadline"));
}

absl::Duration Scheduler::WaitFor(Priority priority, const std::string& client,
                                  int64_t slices) const {
  absl::Duration work = queue_.WorkBefore(priority, client, slices);
  const absl::Time now = options_.clock();
  for (const RunningSlice& running : running_) {
    work += std::max(running.expected_end - now, absl::ZeroDuration());
    const bool is_own =
        running.priority == priority && running.client == client;
    if (is_own) work += running.rest;
  }
  return work / static_cast<int64_t>(options_.worker_cores.size());
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

void Scheduler::Work(const std::vector<int>& cores) {
  PinThisThread(cores);
  while (std::unique_ptr<ActiveJob> job = Next()) {
    const ActiveJob* const running = job.get();
    absl::Status status = RunSlice(*job);
    if (status.ok() && job->run.slices_left() > 0 && IsStopping()) {
      status = DrainingError();
    }
    if (!status.ok() || job->run.slices_left() == 0) {
      End(*job, std::move(status));
      job.reset();
    }
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete): a name by now
    Leave(running, std::move(job));
  }
}

std::unique_ptr<ActiveJob> Scheduler::Next() {
  MutexLock lock(&mutex_);
  while (queue_.empty() && !stopping_) changed_.Wait(&mutex_);
  if (queue_.empty()) return nullptr;
  std::unique_ptr<ActiveJob> job = queue_.Pop();
  const double others = static_cast<double>(job->run.slices_left() - 1);
  running_.push_back({job.get(), job->job.priority, job->job.client,
                      options_.clock() + job->slice_time,
                      others * job->slice_time});
  return job;
}

void Scheduler::Leave(const ActiveJob* running,
                      std::unique_ptr<ActiveJob> job) {
  MutexLock lock(&mutex_);
  running_.erase(std::find_if(
      running_.begin(), running_.end(),
      [&](const RunningSlice& slice) { return slice.job == running; }));
  if (job != nullptr) {
    job->queued_at = options_.clock();
    queue_.PutBack(std::move(job));
  }
  changed_.NotifyAll();
}

bool Scheduler::IsStopping() const {
  MutexLock lock(&mutex_);
  return stopping_;
}

absl::Status Scheduler::RunSlice(ActiveJob& active) {
  active.outcome.queue += options_.clock() - active.queued_at;
  const auto check = [&] { return CheckAlive(active.job); };
  RETURN_IF_ERROR(check());
  const bool is_first = !active.outcome.planned;
  // Nothing of ours throws, but a library or an allocation may, and one job
  // must not take the server down.
  try {
    RETURN_IF_ERROR(active.run.RunSlice(check, &active.outcome));
  } catch (const std::exception& error) {
    return MakeError(
        absl::StatusCode::kInternal,
        {Reason::kInternal, "backend", error.what(), "no exception"});
  }
  const RunTimes& times = active.outcome.run;
  if (is_first) rates_.Learn(active.work, times.reorder + times.compute);
  return absl::OkStatus();
}

void Scheduler::End(ActiveJob& active, absl::Status status) {
  active.outcome.status = std::move(status);
  active.job.done(std::move(active.outcome));
}

void Scheduler::EndUnrun(const std::vector<std::unique_ptr<ActiveJob>>& jobs,
                         const absl::Status& why) {
  for (const std::unique_ptr<ActiveJob>& job : jobs) {
    job->outcome.queue += options_.clock() - job->queued_at;
    End(*job, why.ok() ? CheckAlive(job->job) : why);
  }
}

void Scheduler::DropDead() {
  std::vector<std::unique_ptr<ActiveJob>> dead;
  {
    MutexLock lock(&mutex_);
    dead =
        queue_.Remove([this](const Job& job) { return !CheckAlive(job).ok(); });
    if (!dead.empty()) changed_.NotifyAll();
  }
  EndUnrun(dead, absl::OkStatus());
}

bool Scheduler::Drain(absl::Time until) {
  MutexLock lock(&mutex_);
  refusing_ = true;
  while (!queue_.empty() || !running_.empty()) {
    if (changed_.WaitUntil(&mutex_, until)) break;
  }
  return queue_.empty() && running_.empty();
}

void Scheduler::Shutdown() {
  std::vector<std::unique_ptr<ActiveJob>> left;
  {
    MutexLock lock(&mutex_);
    refusing_ = true;
    stopping_ = true;
    left = queue_.Remove([](const Job&) { return true; });
    changed_.NotifyAll();
  }
  EndUnrun(left, DrainingError());
  MutexLock lock(&join_mutex_);
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

int Scheduler::queue_depth(Priority priority) const {
  MutexLock lock(&mutex_);
  return queue_.size(priority);
}

int Scheduler::running() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(running_.size());
}

absl::Duration Scheduler::EstimatedWait(Priority priority) const {
  MutexLock lock(&mutex_);
  return WaitFor(priority, "", 1);
}

}  // namespace convgrad
