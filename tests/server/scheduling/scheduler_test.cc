#include "server/scheduling/scheduler.h"

#include <sched.h>

#include <optional>

#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/server/scheduling/ending.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

class Clock {
 public:
  absl::Time Now() {
    MutexLock lock(&mutex_);
    return now_;
  }
  void Advance(absl::Duration duration) {
    MutexLock lock(&mutex_);
    now_ += duration;
  }

 private:
  Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::UnixEpoch();
};

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest()
      : memory_(1 << 20, 0, 0,
                [](const std::function<void()>& task) { task(); }) {}

  void Start(int workers = 1, int queue_capacity = 8) {
    Scheduler::Options options;
    options.workers.resize(workers);
    options.queue_capacity = queue_capacity;
    options.clock = [this] { return clock_.Now(); };
    scheduler_.emplace(std::move(options), &plans_, &memory_);
  }

  Job MakeJob(Ending* ending) {
    Job job;
    job.operation = TinyOperation();
    job.backend = backend_.get();
    job.done = ending->Callback();
    return job;
  }
  void Submit(Ending* ending) { scheduler_->Submit(MakeJob(ending)); }

  void UseTraits(PuppetTraits traits) {
    backend_ = std::make_unique<PuppetBackend>(&strings_, std::move(traits));
  }

  Clock clock_;
  PuppetStrings strings_;
  std::unique_ptr<PuppetBackend> backend_ =
      std::make_unique<PuppetBackend>(&strings_);
  CallMemory memory_;
  PlanCache plans_{1 << 20};
  float result_ = 1;
  std::optional<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, RunsAJobAndSaysHow) {
  Start();
  Ending ending;
  Job job = MakeJob(&ending);
  job.buffers.results = {&result_};
  scheduler_->Submit(std::move(job));
  const JobOutcome outcome = ending.Await();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.implementation, "strings");
  EXPECT_TRUE(outcome.planned);
  EXPECT_FALSE(outcome.plan_cache_hit);
  EXPECT_EQ(outcome.run.compute, absl::Milliseconds(3));
  EXPECT_EQ(result_, 0);
  Ending again;
  Submit(&again);
  EXPECT_TRUE(again.Await().plan_cache_hit);
}

TEST_F(SchedulerTest, RefusesBeyondItsQueue) {
  Start(1, 2);
  strings_.HoldRuns();
  Ending running;
  Ending queued[2];
  Ending refused;
  Submit(&running);
  strings_.AwaitRuns(1);
  Submit(&queued[0]);
  Submit(&queued[1]);
  EXPECT_EQ(scheduler_->queue_depth(), 2);
  EXPECT_EQ(scheduler_->running(), 1);
  Submit(&refused);
  EXPECT_EQ(refused.AwaitCode(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.AwaitReason(), Reason::kBusy);
  strings_.Release();
  EXPECT_TRUE(queued[1].Await().status.ok());
}

TEST_F(SchedulerTest, RunsAsManyAtOnceAsItHasWorkers) {
  Start(2);
  strings_.HoldRuns();
  Ending endings[2];
  Submit(&endings[0]);
  Submit(&endings[1]);
  strings_.AwaitRuns(2);
  EXPECT_EQ(scheduler_->running(), 2);
  strings_.Release();
  EXPECT_TRUE(endings[0].Await().status.ok());
  EXPECT_TRUE(endings[1].Await().status.ok());
}

TEST_F(SchedulerTest, DropsOnDequeueWhatIsTooLate) {
  Start();
  strings_.HoldRuns();
  Ending running;
  Ending late;
  Ending next;
  Submit(&running);
  strings_.AwaitRuns(1);
  Job job = MakeJob(&late);
  job.deadline = clock_.Now() + absl::Seconds(1);
  scheduler_->Submit(std::move(job));
  Submit(&next);
  clock_.Advance(absl::Seconds(1));
  strings_.Release();
  EXPECT_EQ(late.AwaitCode(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.Await().queue, absl::Seconds(1));
  EXPECT_TRUE(next.Await().status.ok());
  EXPECT_EQ(strings_.runs(), 2);
}

TEST_F(SchedulerTest, ServesClientsInTurn) {
  Start();
  strings_.HoldRuns();
  Ending running;
  Submit(&running);
  strings_.AwaitRuns(1);
  std::string order;
  Mutex mutex;
  std::vector<Ending> endings(6);
  const std::string clients = "aaaabc";
  for (size_t i = 0; i < clients.size(); ++i) {
    Job job = MakeJob(&endings[i]);
    job.client = clients.substr(i, 1);
    job.done = [&, i, end = std::move(job.done)](JobOutcome outcome) {
      {
        MutexLock lock(&mutex);
        order += clients[i];
      }
      end(std::move(outcome));
    };
    scheduler_->Submit(std::move(job));
  }
  strings_.Release();
  for (Ending& ending : endings) ending.Await();
  EXPECT_EQ(order, "abcaaa");
}

TEST_F(SchedulerTest, RefusesWhatIsTooLateAlready) {
  Start();
  Ending late;
  Job job = MakeJob(&late);
  job.deadline = clock_.Now();
  scheduler_->Submit(std::move(job));
  EXPECT_EQ(late.AwaitCode(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(strings_.runs(), 0);
}

TEST_F(SchedulerTest, DropsOnDequeueWhatIsCancelled) {
  Start();
  strings_.HoldRuns();
  Ending running;
  Ending cancelled;
  Submit(&running);
  strings_.AwaitRuns(1);
  Job job = MakeJob(&cancelled);
  job.cancelled = std::make_shared<std::atomic<bool>>(false);
  const auto flag = job.cancelled;
  scheduler_->Submit(std::move(job));
  *flag = true;
  strings_.Release();
  EXPECT_EQ(cancelled.AwaitCode(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cancelled.AwaitReason(), Reason::kCancelled);
  EXPECT_EQ(strings_.runs(), 1);
}

TEST_F(SchedulerTest, DropDeadEndsTheDeadAndKeepsTheOrderOfTheRest) {
  Start();
  strings_.HoldRuns();
  Ending running;
  Ending late;
  Ending alive;
  Submit(&running);
  strings_.AwaitRuns(1);
  Job job = MakeJob(&late);
  job.deadline = clock_.Now() + absl::Seconds(1);
  scheduler_->Submit(std::move(job));
  Submit(&alive);
  scheduler_->DropDead();
  EXPECT_EQ(scheduler_->queue_depth(), 2);
  clock_.Advance(absl::Seconds(2));
  scheduler_->DropDead();
  EXPECT_EQ(late.AwaitCode(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(scheduler_->queue_depth(), 1);
  EXPECT_FALSE(alive.ended());
  strings_.Release();
  EXPECT_TRUE(alive.Await().status.ok());
}

TEST_F(SchedulerTest, SurvivesAnExceptionOfABackend) {
  PuppetTraits traits;
  traits.throws = true;
  UseTraits(traits);
  Start();
  Ending thrown;
  Submit(&thrown);
  EXPECT_EQ(thrown.AwaitCode(), absl::StatusCode::kInternal);
  EXPECT_EQ(thrown.AwaitReason(), Reason::kInternal);
  Ending second;
  Submit(&second);
  EXPECT_EQ(second.AwaitCode(), absl::StatusCode::kInternal);
}

TEST_F(SchedulerTest, PassesOnTheErrorsOfABackend) {
  PuppetTraits traits;
  traits.run_status = absl::InternalError("the library failed");
  UseTraits(traits);
  Start();
  Ending ending;
  Submit(&ending);
  EXPECT_EQ(ending.Await().status, traits.run_status);
}

TEST_F(SchedulerTest, LendsScratchOutOfTheBudgetAndTakesItBack) {
  PuppetTraits traits;
  traits.scratch_bytes = 100000;
  UseTraits(traits);
  Start();
  strings_.HoldRuns();
  Ending ending;
  Submit(&ending);
  strings_.AwaitRuns(1);
  EXPECT_EQ(memory_.budget.used_bytes(), BufferPool::CapacityFor(100000));
  EXPECT_EQ(memory_.pool.outstanding(), 1);
  strings_.Release();
  EXPECT_TRUE(ending.Await().status.ok());
  EXPECT_EQ(memory_.budget.used_bytes(), 0);
  EXPECT_EQ(memory_.pool.outstanding(), 0);
}

TEST_F(SchedulerTest, RefusesScratchBeyondTheBudget) {
  PuppetTraits traits;
  traits.scratch_bytes = 2 << 20;
  UseTraits(traits);
  Start();
  Ending ending;
  Submit(&ending);
  EXPECT_EQ(ending.AwaitCode(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ending.AwaitReason(), Reason::kLimitExceeded);
}

TEST_F(SchedulerTest, LendsMemoryForTimingToJobsThatAllowIt) {
  Start();
  Ending deterministic;
  Submit(&deterministic);
  EXPECT_EQ(deterministic.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(strings_.plan_options().timing_bytes, 0);

  Ending timed;
  Job job = MakeJob(&timed);
  job.deterministic = false;
  scheduler_->Submit(std::move(job));
  EXPECT_EQ(timed.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_GT(strings_.plan_options().timing_bytes, 0);
  EXPECT_EQ(memory_.budget.used_bytes(), 0);

  // Who is short of memory plans without timing.
  const auto taken = memory_.budget.TryReserve(1 << 20);
  ASSERT_TRUE(taken.ok());
  Ending poor;
  job = MakeJob(&poor);
  job.operation = TinyOperation(2);
  job.deterministic = false;
  scheduler_->Submit(std::move(job));
  EXPECT_EQ(poor.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(strings_.plan_options().timing_bytes, 0);
}

TEST_F(SchedulerTest, DrainFinishesWhatIsAccepted) {
  Start();
  Ending endings[3];
  for (Ending& ending : endings) Submit(&ending);
  EXPECT_TRUE(scheduler_->Drain(absl::InfiniteFuture()));
  for (Ending& ending : endings) EXPECT_TRUE(ending.Await().status.ok());
  Ending refused;
  Submit(&refused);
  EXPECT_EQ(refused.AwaitCode(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(refused.AwaitReason(), Reason::kDraining);
}

TEST_F(SchedulerTest, DrainGivesUpInTime) {
  Start();
  strings_.HoldRuns();
  Ending ending;
  Submit(&ending);
  strings_.AwaitRuns(1);
  EXPECT_FALSE(scheduler_->Drain(absl::UnixEpoch()));
  strings_.Release();
  EXPECT_TRUE(scheduler_->Drain(absl::InfiniteFuture()));
}

TEST_F(SchedulerTest, ShutdownEndsEveryQueuedJobOnce) {
  Start();
  strings_.HoldRuns();
  Ending running;
  Ending queued[3];
  Submit(&running);
  strings_.AwaitRuns(1);
  for (Ending& ending : queued) Submit(&ending);
  std::thread stopper([this] { scheduler_->Shutdown(); });
  for (Ending& ending : queued) {
    EXPECT_EQ(ending.AwaitCode(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ending.AwaitReason(), Reason::kDraining);
  }
  EXPECT_FALSE(running.ended());
  strings_.Release();
  stopper.join();
  EXPECT_TRUE(running.Await().status.ok());
  Ending refused;
  Submit(&refused);
  EXPECT_EQ(refused.AwaitCode(), absl::StatusCode::kUnavailable);
  scheduler_->Shutdown();
}

TEST_F(SchedulerTest, EndsEveryJobOnceUnderManySubmitters) {
  Start(2, 4);
  constexpr int kJobs = 100;
  std::vector<Ending> endings(4 * kJobs);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t, &endings] {
      for (int i = 0; i < kJobs; ++i) {
        Ending& ending = endings[t * kJobs + i];
        Submit(&ending);
        if (i % 10 == 0) scheduler_->DropDead();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Ending& ending : endings) {
    const absl::StatusCode code = ending.AwaitCode();
    EXPECT_TRUE(code == absl::StatusCode::kOk ||
                code == absl::StatusCode::kResourceExhausted);
  }
}

TEST_F(SchedulerTest, PinsEachWorkerToItsCores) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  Scheduler::Options options;
  options.workers = {{.cores = {core}}};
  scheduler_.emplace(std::move(options), &plans_, &memory_);
  Ending ending;
  Job job = MakeJob(&ending);
  cpu_set_t found;
  job.done = [&found, done = ending.Callback()](JobOutcome outcome) {
    sched_getaffinity(0, sizeof(found), &found);
    done(std::move(outcome));
  };
  scheduler_->Submit(std::move(job));
  EXPECT_TRUE(ending.Await().status.ok());
  EXPECT_EQ(CPU_COUNT(&found), 1);
  EXPECT_TRUE(CPU_ISSET(core, &found));
}

}  // namespace
}  // namespace convgrad
