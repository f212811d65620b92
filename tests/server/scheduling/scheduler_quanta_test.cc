// Tests how a long job shares its worker: it runs in slices or quanta, and
// other jobs, cancellations and the shutdown come between two of them.
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "tests/server/scheduling/scheduler_fixture.h"

namespace convgrad {
namespace {

TEST_F(SchedulerTest, ACancelledLongJobLeavesItsWorkerAfterASlice) {
  UseTraits({.macs_per_second = 1});
  Start();
  strings_.HoldRuns();
  Ending cancelled;
  Ending next;
  Job job = MakeLongJob(&cancelled);
  job.cancelled = std::make_shared<std::atomic<bool>>(false);
  const auto flag = job.cancelled;
  scheduler_->Submit(std::move(job));
  strings_.AwaitRuns(1);
  Submit(&next);
  *flag = true;
  strings_.Release();
  EXPECT_EQ(cancelled.AwaitCode(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(next.Await().status.ok());
  EXPECT_EQ(strings_.runs(), 2);
  scheduler_->Shutdown();
  EXPECT_EQ(memory_.budget.used_bytes(), 0);
}

TEST_F(SchedulerTest, OtherJobsRunBetweenTheSlicesOfALongJob) {
  UseTraits({.macs_per_second = 1});
  Start();
  strings_.HoldRuns();
  Ending all;
  Ending another;
  scheduler_->Submit(MakeLongJob(&all));
  strings_.AwaitRuns(1);
  Job job = MakeJob(&another);
  job.client = "b";
  int runs_before_it = 0;
  job.done = [&, end = std::move(job.done)](JobOutcome outcome) {
    runs_before_it = strings_.runs() - 1;
    end(std::move(outcome));
  };
  scheduler_->Submit(std::move(job));
  strings_.Release();
  const JobOutcome outcome = all.Await();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.run.compute, 4 * absl::Milliseconds(3));
  EXPECT_FALSE(outcome.plan_cache_hit);
  EXPECT_EQ(another.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(runs_before_it, 1);
  EXPECT_EQ(strings_.runs(), 5);
}

TEST_F(SchedulerTest, OtherJobsRunBetweenTheQuantaOfAPlan) {
  UseTraits({.scratch_bytes = 1000, .quanta = 3});
  Start();
  strings_.HoldRuns();
  Ending first;
  Ending second;
  Job job = MakeJob(&first);
  int quanta_when_it_ended = 0;
  job.done = [&, end = std::move(job.done)](JobOutcome outcome) {
    quanta_when_it_ended = strings_.runs();
    end(std::move(outcome));
  };
  scheduler_->Submit(std::move(job));
  strings_.AwaitRuns(1);
  job = MakeJob(&second);
  job.client = "b";
  scheduler_->Submit(std::move(job));
  strings_.Release();
  const JobOutcome outcome = first.Await();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.run.compute, 3 * absl::Milliseconds(3));
  EXPECT_EQ(quanta_when_it_ended, 5);
  EXPECT_TRUE(second.Await().status.ok());
  EXPECT_EQ(strings_.plans(), 1);
  scheduler_->Shutdown();
  EXPECT_EQ(memory_.budget.used_bytes(), 0);
}

TEST_F(SchedulerTest, ACancelledJobLeavesItsWorkerAfterAQuantumOfItsPlan) {
  UseTraits({.scratch_bytes = 1000, .quanta = 3});
  Start();
  strings_.HoldRuns();
  Ending ending;
  Job job = MakeJob(&ending);
  job.cancelled = std::make_shared<std::atomic<bool>>(false);
  const auto cancelled = job.cancelled;
  scheduler_->Submit(std::move(job));
  strings_.AwaitRuns(1);
  *cancelled = true;
  strings_.Release();
  EXPECT_EQ(ending.Await().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(strings_.runs(), 1);
  scheduler_->Shutdown();
  EXPECT_EQ(memory_.budget.used_bytes(), 0);
}

TEST_F(SchedulerTest, ShutdownEndsALongJobAfterItsSlice) {
  UseTraits({.macs_per_second = 1});
  Start();
  strings_.HoldRuns();
  Ending cut_off;
  Ending queued;
  scheduler_->Submit(MakeLongJob(&cut_off));
  strings_.AwaitRuns(1);
  Submit(&queued);
  std::thread stopper([this] { scheduler_->Shutdown(); });
  EXPECT_EQ(queued.AwaitReason(), Reason::kDraining);
  strings_.Release();
  stopper.join();
  EXPECT_EQ(cut_off.AwaitReason(), Reason::kDraining);
  EXPECT_EQ(strings_.runs(), 1);
}

}  // namespace
}  // namespace convgrad
