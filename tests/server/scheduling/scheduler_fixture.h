// `SchedulerTest` is a fixture with a scheduler, a puppet backend, a clock that
// tests set, and jobs whose ends tests wait for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backends/core/mutex.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/scheduling/scheduler.h"
#include "tests/server/scheduling/ending.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {

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
    job.operation = std::make_shared<ConvOperation>(TinyOperation());
    job.backend = backend_.get();
    job.done = ending->Callback();
    return job;
  }
  void Submit(Ending* ending) { scheduler_->Submit(MakeJob(ending)); }
  // Runs two jobs, from which on WorkRates predicts such jobs.
  void Measure() {
    for (int i = 0; i < 2; ++i) {
      Ending measured;
      Submit(&measured);
      EXPECT_TRUE(measured.Await().status.ok());
    }
  }
  // Makes a job of four slices, with a backend that counts as slow.
  Job MakeLongJob(Ending* ending) {
    Job job = MakeJob(ending);
    job.operation = std::make_shared<ConvOperation>(TinyOperation(1, 4));
    job.buffers.operands.assign(kOperandCount, operands_);
    job.buffers.results = {results_};
    return job;
  }

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
  float operands_[4] = {};
  float results_[4] = {};
  std::optional<Scheduler> scheduler_;
};

}  // namespace convgrad
