// Tests that a sleep ends in time.
#include "client/cpp/calls/stoppable_sleep.h"

#include <chrono>
#include <future>
#include <thread>

#include "gtest/gtest.h"
#include "tests/client/cpp/stand_in_clock.h"

namespace convgrad {
namespace {

TEST(SleepUnlessStopped, AWallClockThatIsSetBackLengthensNoSleep) {
  std::promise<bool> slept;
  const std::jthread sleeper([&](const std::stop_token& stop) {
    SetClockBack();
    slept.set_value(SleepUnlessStopped(stop, absl::Milliseconds(1)));
  });
  std::future<bool> result = slept.get_future();
  ASSERT_EQ(result.wait_for(std::chrono::seconds(10)),
            std::future_status::ready);
  EXPECT_TRUE(result.get());
}

TEST(SleepUnlessStopped, AStopEndsASleep) {
  std::promise<bool> slept;
  std::jthread sleeper([&](const std::stop_token& stop) {
    slept.set_value(SleepUnlessStopped(stop, absl::Hours(1)));
  });
  sleeper.request_stop();
  EXPECT_FALSE(slept.get_future().get());
}

}  // namespace
}  // namespace convgrad
