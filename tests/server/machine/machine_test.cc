#include "server/machine/machine.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// Tests with a /proc and /sys of their own.
class MachineTest : public testing::Test {
 protected:
  MachineTest()
      : root_(std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {}
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  Machine Read() { return ReadMachine(root_.string()); }

  const std::filesystem::path root_;
};

TEST_F(MachineTest, HasCoresAndMemory) {
  const Machine machine = ReadMachine();
  EXPECT_FALSE(machine.cores.empty());
  EXPECT_GE(machine.usable_cores, 1);
  EXPECT_GT(machine.memory_bytes, 1 << 20);
}

TEST_F(MachineTest, ReadsTheModelOfTheFirstCpu) {
  Write("/proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
        "model\t\t: 143\nmodel name\t: Intel(R) Xeon(R) \x01 Gold: 6448Y\n"
        "stepping\t: 8\n\nprocessor\t: 1\nmodel name\t: another\n");
  EXPECT_EQ(Read().cpu_model,
            "Intel(R) Xeon(R) ? Gold: 6448Y (GenuineIntel 6/143/8)");
  Write("/proc/cpuinfo",
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\n"
        "CPU part\t: 0xd40\nCPU revision\t: 1\n");
  EXPECT_EQ(Read().cpu_model, "(0x41 0xd40/0x1/1)");
  Write("/proc/cpuinfo", "model name: " + std::string(5000, 'x'));
  EXPECT_EQ(Read().cpu_model.size(), 256);
  Write("/proc/cpuinfo", "");
  EXPECT_EQ(Read().cpu_model, "");
}

TEST_F(MachineTest, ReadsLimitsOfVersion2) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/memory.max", "400000000\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
  EXPECT_EQ(Read().memory_bytes, 400000000);
  EXPECT_EQ(Read().memory_name, "the container's memory limit");
  EXPECT_EQ(Read().usable_cores, 1);
}

TEST_F(MachineTest, ReadsLimitsOfVersion1) {
  Write("/proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/a\n");
  Write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300000000\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Read().memory_bytes, 300000000);
  EXPECT_EQ(Read().usable_cores, 1);
}

TEST_F(MachineTest, IgnoresLimitsThatAreNone) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const Machine machine = Read();
  EXPECT_GT(machine.memory_bytes, 300000000);
  EXPECT_EQ(machine.memory_name, "this machine's memory");
  EXPECT_EQ(machine.usable_cores, static_cast<int>(machine.cores.size()));
}

TEST_F(MachineTest, PutsTheCoresOfANodeNextToEachOther) {
  const std::vector<int> cores = Read().cores;
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  // The first and the last core swap places; node 1 has no core of the process.
  Write("/sys/devices/system/node/node0/cpulist",
        absl::StrCat(cores.back(), "\n"));
  Write("/sys/devices/system/node/node1/cpulist", "5000-5003,5010\n");
  Write("/sys/devices/system/node/node2/cpulist",
        absl::StrCat(cores.front(), "-", cores[cores.size() - 2], "\n"));
  const Machine machine = Read();
  EXPECT_EQ(machine.nodes, 2);
  EXPECT_EQ(machine.cores.front(), cores.back());
  EXPECT_EQ(machine.cores[1], cores.front());
  EXPECT_EQ(machine.cores.size(), cores.size());
}

TEST_F(MachineTest, IsOneNodeWhereTheKernelNamesNone) {
  EXPECT_EQ(Read().nodes, 1);
  Write("/sys/devices/system/node/node0/cpulist", "5000\n");
  EXPECT_EQ(Read().nodes, 1);
}

TEST_F(MachineTest, ReadsLimitsAgain) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "400000000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  const Machine first = Read();
  Write("/sys/fs/cgroup/a/memory.max", "300000000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  const std::optional<Machine> lower = ReadLimits(first, root_.string());
  ASSERT_TRUE(lower.has_value());
  EXPECT_EQ(lower->memory_bytes, 300000000);
  EXPECT_EQ(lower->usable_cores, 1);
  EXPECT_EQ(lower->cores, first.cores);
  EXPECT_EQ(lower->nodes, first.nodes);
  Write("/sys/fs/cgroup/a/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  const std::optional<Machine> none = ReadLimits(*lower, root_.string());
  ASSERT_TRUE(none.has_value());
  EXPECT_GT(none->memory_bytes, 400000000);
  EXPECT_EQ(none->memory_name, "this machine's memory");
  EXPECT_EQ(none->usable_cores, first.usable_cores);
}

TEST_F(MachineTest, UnreadableLimitsAreUnknown) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "400000000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
  const Machine machine = Read();
  const auto is_known = [&] {
    return ReadLimits(machine, root_.string()).has_value();
  };
  for (const char* text : {"", "0", "-5", "4 5", "4G", "0x10", "maximum",
                           "99999999999999999999", "\xff\xff"}) {
    Write("/sys/fs/cgroup/a/memory.max", text);
    EXPECT_FALSE(is_known()) << text;
  }
  Write("/sys/fs/cgroup/a/memory.max", "400000000\n");
  EXPECT_TRUE(is_known());
  for (const char* text : {"", "max", "50000", "50000 0", "0 100000", "a b"}) {
    Write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_FALSE(is_known()) << text;
  }
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  std::filesystem::remove(root_.string() + "/sys/fs/cgroup/a/memory.max");
  EXPECT_FALSE(is_known());
  // Not readable, as root may read any file.
  std::filesystem::create_directory(root_.string() +
                                    "/sys/fs/cgroup/a/memory.max");
  EXPECT_FALSE(is_known());
}

Machine MachineOf(std::vector<int> cores, int usable) {
  Machine machine;
  machine.cores = std::move(cores);
  machine.usable_cores = usable;
  return machine;
}

using Sets = std::vector<std::vector<int>>;

TEST(CoreSets, GivesEachWorkerItsOwn) {
  EXPECT_EQ(CoreSets(MachineOf({2, 3, 6, 7}, 4), 2, 2), (Sets{{2, 3}, {6, 7}}));
  EXPECT_EQ(CoreSets(MachineOf({0, 1, 2}, 3), 1, 2), (Sets{{0, 1}}));
}

TEST(CoreSets, PinsNothingWhereCoresAreShared) {
  EXPECT_EQ(CoreSets(MachineOf({0, 1}, 2), 2, 2), (Sets{{}, {}}));
  EXPECT_EQ(CoreSets(MachineOf({0, 1, 2, 3}, 2), 1, 2), (Sets{{}}));
}

}  // namespace
}  // namespace convgrad
