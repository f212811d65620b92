#include "server/scheduling/scheduler.h"

#include <sched.h>

#include "tests/server/scheduling/scheduler_fixture.h"

namespace convgrad {
namespace {

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
  EXPECT_EQ(scheduler_->queue_depth(Priority::kBatch), 2);
  EXPECT_EQ(scheduler_->running(), 1);
  Submit(&refused);
  EXPECT_EQ(refused.AwaitCode(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.AwaitReason(), Reason::kBusy);
  EXPECT_TRUE(refused.Await().no_room);
  // A call's second job is queued, because the first one would be lost.
  Ending second;
  Job job = MakeJob(&second);
  job.continues = true;
  scheduler_->Submit(std::move(job));
  EXPECT_EQ(scheduler_->queue_depth(Priority::kBatch), 3);
  strings_.Release();
  EXPECT_TRUE(second.Await().status.ok());
  EXPECT_TRUE(queued[1].Await().status.ok());
  EXPECT_FALSE(queued[1].Await().no_room);
}

TEST_F(SchedulerTest, RunsAsManyAtOnceAsMayBeActive) {
  Start(3);
  strings_.HoldRuns();
  Ending endings[3];
  Submit(&endings[0]);
  Submit(&endings[1]);
  strings_.AwaitRuns(2);
  scheduler_->SetActiveWorkers(1);
  Submit(&endings[2]);
  EXPECT_EQ(scheduler_->queue_depth(Priority::kBatch), 1);
  scheduler_->SetActiveWorkers(3);
  strings_.AwaitRuns(3);
  strings_.Release();
  for (Ending& ending : endings) EXPECT_TRUE(ending.Await().status.ok());
  scheduler_->SetActiveWorkers(1);
  Ending last[2];
  Submit(&last[0]);
  Submit(&last[1]);
  for (Ending& ending : last) EXPECT_TRUE(ending.Await().status.ok());
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

TEST_F(SchedulerTest, ServesClientsRoundRobin) {
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

TEST_F(SchedulerTest, RefusesWhatWouldEndTooLate) {
  UseTraits({.run_times = {.compute = absl::Seconds(100), .steps = {}}});
  Start();
  Measure();
  // A free worker takes a job that just fits its deadline.
  strings_.HoldRuns();
  Ending running;
  Job job = MakeJob(&running);
  job.deadline = clock_.Now() + absl::Seconds(60);
  scheduler_->Submit(std::move(job));
  strings_.AwaitRuns(3);
  // 100 s of work are before this job, which takes as long; estimates have an
  // error.
  Ending refused;
  job = MakeJob(&refused);
  job.deadline = clock_.Now() + absl::Seconds(290);
  EXPECT_EQ(scheduler_->Prepare(job).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(
      scheduler_->CheckArrival(job.priority, job.client, job.deadline).ok());
  EXPECT_FALSE(scheduler_
                   ->CheckArrival(job.priority, job.client,
                                  clock_.Now() + absl::Seconds(140))
                   .ok());
  scheduler_->Submit(std::move(job));
  EXPECT_EQ(refused.AwaitReason(), Reason::kBusy);
  EXPECT_TRUE(refused.Await().no_room);
  EXPECT_EQ(scheduler_->EstimatedWait(Priority::kBatch), absl::Seconds(100));
  // The other job has run for a while by then.
  clock_.Advance(absl::Seconds(50));
  Ending queued;
  job = MakeJob(&queued);
  job.deadline = clock_.Now() + absl::Seconds(290);
  scheduler_->Submit(std::move(job));
  EXPECT_FALSE(queued.ended());
  strings_.Release();
  EXPECT_EQ(queued.AwaitCode(), absl::StatusCode::kOk);
}

TEST_F(SchedulerTest, RefusesForGoodWhatTakesLongerThanItsDeadline) {
  UseTraits({.run_times = {.compute = absl::Seconds(100), .steps = {}}});
  Start();
  Measure();
  Ending refused;
  Job job = MakeJob(&refused);
  job.deadline = clock_.Now() + absl::Seconds(40);
  scheduler_->Submit(std::move(job));
  EXPECT_EQ(refused.AwaitCode(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.AwaitReason(), Reason::kLimitExceeded);
  EXPECT_FALSE(refused.Await().no_room);
  // Measurements expire soon.
  clock_.Advance(absl::Minutes(4));
  Ending tried;
  job = MakeJob(&tried);
  job.deadline = clock_.Now() + absl::Seconds(40);
  scheduler_->Submit(std::move(job));
  EXPECT_EQ(tried.AwaitCode(), absl::StatusCode::kOk);
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
  EXPECT_EQ(scheduler_->queue_depth(Priority::kBatch), 2);
  clock_.Advance(absl::Seconds(2));
  scheduler_->DropDead();
  EXPECT_EQ(late.AwaitCode(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(scheduler_->queue_depth(Priority::kBatch), 1);
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
