// Tests the jobs of devices' workers, and the jobs of a lost device.
#include "tests/server/scheduling/scheduler_fixture.h"

namespace convgrad {
namespace {

class DeviceWorkersTest : public SchedulerTest {
 protected:
  // Stops the workers, which use the members below.
  ~DeviceWorkersTest() override { scheduler_.reset(); }

  // Starts a worker on cores, and one for each device.
  void StartDevices(int devices, int queue_capacity = 8) {
    device_traits_.name = "cuda";
    device_traits_.devices = devices;
    device_backend_.emplace(&device_strings_, device_traits_);
    Scheduler::Options options;
    options.workers.push_back({});
    for (int i = 0; i < devices; ++i) {
      options.workers.push_back({{}, &*device_backend_, i});
    }
    options.queue_capacity = queue_capacity;
    options.clock = [this] { return clock_.Now(); };
    scheduler_.emplace(std::move(options), &plans_, &memory_);
  }

  Job MakeDeviceJob(Ending* ending) {
    Job job = MakeJob(ending);
    job.backend = &*device_backend_;
    return job;
  }
  void SubmitToDevice(Ending* ending) {
    scheduler_->Submit(MakeDeviceJob(ending));
  }

  PuppetStrings device_strings_;
  PuppetTraits device_traits_;
  std::optional<PuppetBackend> device_backend_;
};

TEST_F(DeviceWorkersTest, CoresAndDevicesDontWaitForEachOther) {
  StartDevices(1, /*queue_capacity=*/1);
  Ending on_cores, waiting, refused, on_device;
  strings_.HoldRuns();
  Submit(&on_cores);
  strings_.AwaitRuns(1);
  Submit(&waiting);
  Submit(&refused);
  EXPECT_EQ(refused.AwaitReason(), Reason::kBusy);
  EXPECT_TRUE(
      scheduler_->CheckArrival(Priority::kBatch, "", absl::InfiniteFuture())
          .ok());
  SubmitToDevice(&on_device);
  EXPECT_EQ(on_device.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(scheduler_->queue_depth(Priority::kBatch), 1);
  EXPECT_EQ(scheduler_->queue_depth(*backend_), 1);
  EXPECT_EQ(scheduler_->queue_depth(*device_backend_), 0);
  strings_.Release();
  EXPECT_EQ(on_cores.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(waiting.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(device_strings_.runs(), 1);
  EXPECT_EQ(strings_.runs(), 2);
}

TEST_F(DeviceWorkersTest, AnArrivalIsRefusedWhereNothingHasRoom) {
  StartDevices(1, /*queue_capacity=*/1);
  strings_.HoldRuns();
  device_strings_.HoldRuns();
  Ending on_cores, on_device, waiting, device_waiting;
  Submit(&on_cores);
  SubmitToDevice(&on_device);
  strings_.AwaitRuns(1);
  device_strings_.AwaitRuns(1);
  Submit(&waiting);
  const auto arrival = [this] {
    return scheduler_
        ->CheckArrival(Priority::kBatch, "", absl::InfiniteFuture())
        .ok();
  };
  EXPECT_TRUE(arrival());
  SubmitToDevice(&device_waiting);
  EXPECT_FALSE(arrival());
  strings_.Release();
  device_strings_.Release();
  for (Ending* ending : {&on_cores, &on_device, &waiting, &device_waiting}) {
    EXPECT_EQ(ending->AwaitCode(), absl::StatusCode::kOk);
  }
}

TEST_F(DeviceWorkersTest, ALongJobsSlicesAndTransfersAddUp) {
  device_traits_.macs_per_second = 1;
  device_traits_.run_times = {
      absl::ZeroDuration(), absl::Seconds(2), absl::Seconds(3), 100, {}};
  StartDevices(2);
  Ending ending;
  Job job = MakeLongJob(&ending);
  job.backend = &*device_backend_;
  scheduler_->Submit(std::move(job));
  const RunTimes run = ending.Await().run;
  EXPECT_EQ(device_strings_.runs(), 4);
  EXPECT_EQ(run.compute, absl::Seconds(8));
  EXPECT_EQ(run.transfer, absl::Seconds(12));
  EXPECT_EQ(run.transferred_bytes, 400);
}

TEST_F(DeviceWorkersTest, EstimatesHaveTransfersAndCountDevicesThatWork) {
  device_traits_.run_times = {
      absl::ZeroDuration(), absl::Seconds(40), absl::Seconds(60), 100, {}};
  StartDevices(2);
  for (int i = 0; i < 2; ++i) {  // WorkRates predicts from the second job on.
    Ending measured;
    SubmitToDevice(&measured);
    EXPECT_EQ(measured.AwaitCode(), absl::StatusCode::kOk);
  }
  device_strings_.HoldRuns();
  Ending first, second;
  SubmitToDevice(&first);
  SubmitToDevice(&second);
  device_strings_.AwaitRuns(4);
  EXPECT_EQ(scheduler_->EstimatedWait(Priority::kBatch), absl::Seconds(100));
  // The cores are free.
  EXPECT_TRUE(
      scheduler_->CheckArrival(Priority::kBatch, "", clock_.Now()).ok());
  Ending unrun;
  Job job = MakeDeviceJob(&unrun);
  job.deadline = clock_.Now() + absl::Seconds(310);
  EXPECT_TRUE(scheduler_->Prepare(job).ok());
  device_strings_.LoseDevice(1);
  EXPECT_EQ(scheduler_->EstimatedWait(Priority::kBatch), absl::Seconds(200));
  EXPECT_FALSE(scheduler_->Prepare(job).ok());
  device_strings_.Release();
  first.Await();
  second.Await();
}

TEST_F(DeviceWorkersTest, EachDeviceHasAWorkerAndPlansOfItsOwn) {
  StartDevices(2);
  Ending first, second;
  device_strings_.HoldRuns();
  SubmitToDevice(&first);
  SubmitToDevice(&second);
  // Both run at once, and the same operation was planned twice.
  device_strings_.AwaitRuns(2);
  EXPECT_EQ(device_strings_.plans(), 2);
  device_strings_.Release();
  EXPECT_EQ(first.AwaitCode(), absl::StatusCode::kOk);
  EXPECT_EQ(second.AwaitCode(), absl::StatusCode::kOk);
}

TEST_F(DeviceWorkersTest, TheOthersTakeWhatALostDeviceWouldHave) {
  StartDevices(2);
  device_strings_.LoseDevice(0);
  for (int i = 0; i < 6; ++i) {
    Ending ending;
    SubmitToDevice(&ending);
    EXPECT_EQ(ending.AwaitCode(), absl::StatusCode::kOk);
    EXPECT_EQ(device_strings_.plan_options().device, 1);
  }
}

TEST_F(DeviceWorkersTest, WithNoDeviceLeftJobsAreAnsweredUnavailable) {
  StartDevices(2);
  device_strings_.HoldRuns();
  Ending running, queued, third;
  SubmitToDevice(&running);
  SubmitToDevice(&queued);
  device_strings_.AwaitRuns(2);
  SubmitToDevice(&third);
  device_strings_.LoseDevice(0);
  device_strings_.LoseDevice(1);
  device_strings_.Release();
  for (Ending* ending : {&running, &queued, &third}) {
    EXPECT_EQ(ending->AwaitCode(), absl::StatusCode::kUnavailable);
  }
  Ending on_cores;
  Submit(&on_cores);
  EXPECT_EQ(on_cores.AwaitCode(), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace convgrad
