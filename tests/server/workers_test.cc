#include "server/workers.h"

#include "gtest/gtest.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

class WorkersTest : public testing::Test {
 protected:
  void Add(absl::string_view name, int devices) {
    PuppetTraits traits;
    traits.devices = devices;
    backends_.push_back(RegisteredPuppet(name, &strings_, traits));
  }
  std::vector<Scheduler::Worker> Workers() const {
    Config config;
    config.workers = 2;
    config.pin_workers = false;
    return SchedulerOptions(config, {}, backends_).workers;
  }

  PuppetStrings strings_;
  std::vector<RegisteredBackend> backends_;
};

TEST_F(WorkersTest, AreThoseOnCoresAndOneForEachDevice) {
  Add("cuda", 2);
  Add("onednn", 0);
  const std::vector<Scheduler::Worker> workers = Workers();
  ASSERT_EQ(workers.size(), 4);
  EXPECT_EQ(workers[0].backend, nullptr);
  EXPECT_EQ(workers[1].backend, nullptr);
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(workers[2 + device].backend, backends_[0].backend->get());
    EXPECT_EQ(workers[2 + device].device, device);
  }
}

TEST_F(WorkersTest, AreNotOnCoresWhereNothingComputesThere) {
  Add("cuda", 1);
  backends_.push_back({"onednn", absl::UnavailableError("not here")});
  ASSERT_EQ(Workers().size(), 1);
  EXPECT_EQ(Workers()[0].backend, backends_[0].backend->get());
}

}  // namespace
}  // namespace convgrad
