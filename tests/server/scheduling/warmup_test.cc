#include "server/scheduling/warmup.h"

#include "backends/core/convolution/problem_list.h"
#include "gtest/gtest.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

TEST(WarmUp, MakesAPlanForEachDeviceAndOneForCores) {
  PuppetStrings cores, devices;
  PuppetTraits traits;
  traits.devices = 3;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("cuda", &devices, traits));
  backends.push_back(RegisteredPuppet("onednn", &cores));
  const ProblemList work = {
      {*Parse("conv2d_n1_c1_o1_i3_k3")}, {DataType::kF32}, {Layout::kNCX}};
  PlanCache plans(1 << 20);
  const auto warm_up = [&] {
    return WarmUp(work.Operations(), backends, 1, &plans, [] { return false; });
  };
  // The problem has a forward and a backward.
  const absl::StatusOr<WarmupOutcome> outcome = warm_up();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->plans, 2 * 3 + 2);
  EXPECT_EQ(outcome->made, 2 * 3 + 2);
  EXPECT_EQ(devices.plans(), 2 * 3);
  EXPECT_EQ(cores.plans(), 2);
  EXPECT_EQ(warm_up()->made, 0);
}

}  // namespace
}  // namespace convgrad
