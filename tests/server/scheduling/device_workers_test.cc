// Workers of devices: what they take, and what becomes of a lost one's jobs.
#include <optional>

#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/scheduling/scheduler.h"
#include "tests/server/scheduling/ending.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

class DeviceWorkersTest : public testing::Test {
 protected:
  DeviceWorkersTest()
      : memory_(1 << 20, 0, 0,
                [](const std::function<void()>& task) { task(); }) {}

  void Start(int devices) {
    PuppetTraits traits;
    traits.name = "cuda";
    traits.devices = devices;
    device_backend_.emplace(&device_strings_, traits);
    Scheduler::Options options;
    options.workers.push_back({});
    for (int i = 0; i < devices; ++i) {
      options.workers.push_back({{}, &*device_backend_, i});
    }
    options.queue_capacity = 8;
    options.on_run = [this](const Job& job, const RunTimes& times) {
      EXPECT_EQ(times.compute, absl::Milliseconds(3));
      MutexLock lock(&mutex_);
      ran_.push_back(job.backend);
    };
    scheduler_.emplace(std::move(options), &plans_, &memory_);
  }

  void Submit(const Backend& backend, Ending* ending) {
    Job job;
    job.operation = TinyOperation();
    job.backend = &backend;
    job.buffers.results = {&result_};
    job.done = ending->Callback();
    scheduler_->Submit(std::move(job));
  }

  PuppetStrings strings_, device_strings_;
  PuppetBackend cores_{&strings_};
  std::optional<PuppetBackend> device_backend_;
  float result_ = 0;
  PlanCache plans_{1 << 20};
  CallMemory memory_;
  Mutex mutex_;
  std::vector<const Backend*> ran_ ABSL_GUARDED_BY(mutex_);
  std::optional<Scheduler> scheduler_;
};

TEST_F(DeviceWorkersTest, CoresAndDevicesDontWaitForEachOther) {
  Start(1);
  Ending on_cores, on_device, waiting;
  strings_.HoldRuns();
  Submit(cores_, &on_cores);
  strings_.AwaitRuns(1);
  Submit(cores_, &waiting);
  Submit(*device_backend_, &on_device);
  EXPECT_EQ(on_device.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(scheduler_->queue_depth(), 1);
  EXPECT_EQ(scheduler_->queue_depth(cores_), 1);
  EXPECT_EQ(scheduler_->queue_depth(*device_backend_), 0);
  strings_.Release();
  EXPECT_EQ(on_cores.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(waiting.AwaitCode(), absl::StatusCode::kOk);
  scheduler_->Shutdown();
  MutexLock lock(&mutex_);
  EXPECT_EQ(ran_,
            (std::vector<const Backend*>{&*device_backend_, &cores_, &cores_}));
}

TEST_F(DeviceWorkersTest, EachDeviceHasAWorkerAndPlansOfItsOwn) {
  Start(2);
  Ending first, second;
  device_strings_.HoldRuns();
  Submit(*device_backend_, &first);
  Submit(*device_backend_, &second);
  // Both at once, and the same operation was planned twice.
  device_strings_.AwaitRuns(2);
  EXPECT_EQ(device_strings_.plans(), 2);
  device_strings_.Release();
  EXPECT_EQ(first.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(second.AwaitCode(), absl::StatusCode::kOk);
}

TEST_F(DeviceWorkersTest, TheOthersTakeWhatALostDeviceWouldHave) {
  Start(2);
  device_strings_.LoseDevice(0);
  for (int i = 0; i < 6; ++i) {
    Ending ending;
    Submit(*device_backend_, &ending);
    EXPECT_EQ(ending.AwaitCode(), absl::StatusCode::kOk);
    EXPECT_EQ(device_strings_.plan_options().device, 1);
  }
}

TEST_F(DeviceWorkersTest, WithNoDeviceLeftJobsAreAnsweredUnavailable) {
  Start(2);
  device_strings_.HoldRuns();
  Ending running, queued, third;
  Submit(*device_backend_, &running);
  Submit(*device_backend_, &queued);
  device_strings_.AwaitRuns(2);
  Submit(*device_backend_, &third);
  device_strings_.LoseDevice(0);
  device_strings_.LoseDevice(1);
  device_strings_.Release();
  for (Ending* ending : {&running, &queued, &third}) {
    EXPECT_EQ(ending->AwaitCode(), absl::StatusCode::kUnavailable);
  }
  Ending on_cores;
  Submit(cores_, &on_cores);
  EXPECT_EQ(on_cores.AwaitCode(), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace convgrad
