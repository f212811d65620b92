// Tests calls while the system's clock is set.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "absl/time/clock.h"
#include "backends/core/steady_now.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/pending_call.h"
#include "tests/end_to_end/peers/raw_stream.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace {

// Seconds between the wall clock of this process and the system's.
std::atomic<int64_t> wall_step = 0;

}  // namespace

// Replaces the C library's function for all libraries of this process.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += wall_step;
  return static_cast<int>(result);
}

namespace convgrad {
namespace {

constexpr int64_t kDay = 24 * 60 * 60;
constexpr absl::Duration kTimeout = absl::Minutes(5);

class ClockStepsTest : public testing::Test {
 protected:
  ~ClockStepsTest() override { wall_step = 0; }

  static std::vector<RegisteredBackend> Puppets(PuppetStrings* strings) {
    std::vector<RegisteredBackend> backends;
    backends.push_back(RegisteredPuppet("puppet", strings));
    return backends;
  }

  PuppetStrings strings_;
  TestServer server_{TestConfig(), Puppets(&strings_)};
};

TEST_F(ClockStepsTest, AStepForwardEndsNoCall) {
  strings_.HoldRuns();
  PendingCall running(server_.stub(), kTimeout);
  strings_.AwaitRuns(1);
  PendingCall queued(server_.stub(), kTimeout);
  while (server_.server().gauges().SumOf("convgrad_queue_depth") == 0) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  wall_step = kDay;
  // absl::Now notices a step only after two seconds.
  absl::SleepFor(absl::Seconds(3));
  strings_.Release();
  EXPECT_EQ(running.Await(), grpc::StatusCode::OK);
  EXPECT_EQ(queued.Await(), grpc::StatusCode::OK);
}

TEST_F(ClockStepsTest, AStepBackEndsNoCall) {
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoSeconds(kTimeout));
    v1::ConvBackwardResponse response;
    const grpc::Status status =
        server_.stub().ConvBackward(&context, SeedBackward(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    wall_step = -kDay;
  }
}

TEST_F(ClockStepsTest, AStepBackDelaysNoStop) {
  RawStream stream(server_.stub(), kTimeout);
  ASSERT_TRUE(stream.Write(TestHeader()));
  while (server_.server().gauges().SumOf("convgrad_memory_used_bytes") == 0) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  wall_step = -kDay;
  const absl::Time start = SteadyNow();
  server_.Stop();
  // A stream may be idle for a minute.
  EXPECT_LT(SteadyNow() - start, absl::Seconds(20));
}

}  // namespace
}  // namespace convgrad
