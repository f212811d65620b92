// Tests a server whose cgroup's limits move, with a /proc and /sys of its own.
#include "server/limit_watch.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/memory/admission.h"
#include "server/server_readings.h"
#include "tests/server/scheduling/ending.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class LimitWatchTest : public testing::Test {
 protected:
  LimitWatchTest()
      : root_(std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    Write("/proc/self/cgroup", "0::/pod\n");
    SetMemory("1073741824");
    SetCpu("max 100000");
    flags_.machine_root = root_.string();
    flags_.workers = 2;
    flags_.pin_workers = false;
  }
  ~LimitWatchTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void SetMemory(const std::string& text) {
    Write("/sys/fs/cgroup/pod/memory.max", text);
  }
  void SetCpu(const std::string& text) {
    Write("/sys/fs/cgroup/pod/cpu.max", text);
  }

  void Start() {
    machine_ = ReadMachine(flags_.machine_root);
    machine_.usable_cores = 4;
    machine_.cores = {0, 1, 2, 3};
    std::vector<RegisteredBackend> backends;
    backends.push_back(RegisteredPuppet("puppet", &strings_, {}));
    engine_ = std::make_unique<ComputeEngine>(
        WithDefaults(flags_, machine_), machine_, std::move(backends),
        [](const std::function<void()>& task) { task(); });
    watch_ =
        std::make_unique<LimitWatch>(flags_, machine_, engine_.get(),
                                     [this](int64_t bytes) { quota_ = bytes; });
  }

  // Returns the calls' memory after a look, in MiB.
  int64_t Capacity() {
    watch_->Look();
    return ReadingsOf(*engine_).SumOf("convgrad_memory_capacity_bytes") / kMiB;
  }

  const std::filesystem::path root_;
  Config flags_;
  Machine machine_;
  PuppetStrings strings_;
  int64_t quota_ = 0;
  std::unique_ptr<ComputeEngine> engine_;
  std::unique_ptr<LimitWatch> watch_;
};

TEST_F(LimitWatchTest, TheBudgetFollowsBothWays) {
  Start();
  // 512 MiB without 64 each for the process and for idle buffers, and 32 for
  // each cache.
  EXPECT_EQ(Capacity(), 320);
  EXPECT_EQ(watch_->budget_bytes(), 512 * kMiB);
  SetMemory("536870912");
  EXPECT_EQ(Capacity(), 128);
  EXPECT_EQ(watch_->budget_bytes(), 256 * kMiB);
  EXPECT_EQ(ReadingsOf(*engine_).SumOf("convgrad_kept_capacity_bytes"),
            64 * kMiB);
  EXPECT_LT(AdmissionBytes(engine_->memory->largest_message_bytes), 64 * kMiB);
  SetMemory("2147483648");
  EXPECT_EQ(Capacity(), 704);
  SetMemory("1073741824");
  EXPECT_EQ(Capacity(), 320);
  EXPECT_EQ(ReadingsOf(*engine_).SumOf("convgrad_kept_capacity_bytes"),
            160 * kMiB);
}

TEST_F(LimitWatchTest, WhatCannotBeReadChangesNothing) {
  Start();
  for (const char* text : {"", "no", "0", "-7", "1e3", "\0\0"}) {
    SetMemory(text);
    EXPECT_EQ(Capacity(), 320) << text;
  }
  std::filesystem::remove_all(root_ / "sys");
  EXPECT_EQ(Capacity(), 320);
  std::filesystem::remove_all(root_ / "proc");
  EXPECT_EQ(Capacity(), 320);
}

TEST_F(LimitWatchTest, ALimitBelowEverythingLeavesTwoSmallCalls) {
  Start();
  SetMemory("4096");
  watch_->Look();
  EXPECT_EQ(engine_->memory->budget.capacity_bytes(),
            Config::LeastCallBudgetBytes());
  SetMemory("1073741824");
  EXPECT_EQ(Capacity(), 320);
}

TEST_F(LimitWatchTest, KeptTensorsStayAndNewOnesAreRefusedByName) {
  Start();
  const auto& kept = engine_->sessions.memory();
  auto tensor = kept->Take(96 * kMiB, nullptr);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  (*tensor)->data()[96 * kMiB - 1] = std::byte{7};
  SetMemory("268435456");
  // Calls have half of their 32 MiB beside what is kept.
  EXPECT_EQ(Capacity(), 96 + 16);
  EXPECT_EQ(kept->used_bytes(), 96 * kMiB);
  EXPECT_EQ(DetailOf(kept->CheckRoom())->field, "kept bytes");
  EXPECT_EQ((*tensor)->data()[96 * kMiB - 1], std::byte{7});
  const absl::Status refused = kept->Take(kMiB, nullptr).status();
  EXPECT_EQ(DetailOf(refused)->reason, Reason::kBusy);
  EXPECT_EQ(DetailOf(refused)->field, "kept bytes");
  SetMemory("218103808");
  // 104 MiB without 64 for the process and 26 for buffers and caches are 14.
  EXPECT_EQ(Capacity(), 96 + 7);
  tensor->reset();
  EXPECT_EQ(Capacity(), 14);
  EXPECT_TRUE(kept->CheckRoom().ok());
  SetMemory("1073741824");
  watch_->Look();
  EXPECT_TRUE(kept->Take(kMiB, nullptr).ok());
}

TEST_F(LimitWatchTest, ALimitThatFlipsLosesNothing) {
  Start();
  for (int i = 0; i < 100; ++i) {
    SetMemory(i % 2 == 0 ? "268435456" : "max");
    watch_->Look();
    auto taken = engine_->memory->budget.TryReserve(kMiB);
    ASSERT_TRUE(taken.ok()) << i;
  }
  EXPECT_EQ(engine_->memory->budget.used_bytes(), 0);
}

TEST_F(LimitWatchTest, NothingChangesWithoutAChange) {
  flags_.max_message_bytes = 12345677;
  flags_.memory_budget_bytes = 256 * kMiB;
  Start();
  const Config config = WithDefaults(flags_, machine_);
  watch_->Look();
  const Readings now = ReadingsOf(*engine_);
  EXPECT_EQ(now.SumOf("convgrad_memory_capacity_bytes"),
            config.CallBudgetBytes());
  EXPECT_EQ(now.SumOf("convgrad_kept_capacity_bytes"), config.max_kept_bytes);
  EXPECT_EQ(engine_->memory->largest_message_bytes, 12345677);
}

TEST_F(LimitWatchTest, TheQuotaOfGrpcShrinksOnceCallsHaveEnded) {
  Start();
  EXPECT_EQ(quota_, 320 * kMiB);
  auto taken = engine_->memory->budget.TryReserve(200 * kMiB);
  SetMemory("536870912");
  EXPECT_EQ(Capacity(), 128);
  EXPECT_EQ(quota_, 320 * kMiB);
  *taken = Reservation();
  watch_->Look();
  EXPECT_EQ(quota_, 128 * kMiB);
  SetMemory("2147483648");
  watch_->Look();
  EXPECT_EQ(quota_, 704 * kMiB);
}

TEST_F(LimitWatchTest, ABudgetOfTheOperatorStays) {
  flags_.memory_budget_bytes = 512 * kMiB;
  Start();
  SetMemory("268435456");
  EXPECT_EQ(Capacity(), 320);
}

TEST_F(LimitWatchTest, HalfOfTheWorkersPauseWithHalfOfTheCores) {
  Start();
  strings_.HoldRuns();
  Ending endings[2];
  SetCpu("200000 100000");
  watch_->Look();
  const auto submit = [&](Ending* ending) {
    Job job;
    job.operation = std::make_shared<ConvOperation>(TinyOperation());
    job.backend = engine_->backends[0].backend->get();
    job.done = ending->Callback();
    engine_->scheduler.Submit(std::move(job));
  };
  for (Ending& ending : endings) submit(&ending);
  strings_.AwaitRuns(1);
  EXPECT_EQ(engine_->scheduler.queue_depth(Priority::kBatch), 1);
  SetCpu("400000 100000");
  watch_->Look();
  strings_.AwaitRuns(2);
  strings_.Release();
  for (Ending& ending : endings) EXPECT_TRUE(ending.Await().status.ok());
}

}  // namespace
}  // namespace convgrad
