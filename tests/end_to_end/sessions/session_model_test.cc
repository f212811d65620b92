// Tests random calls of sessions over a real socket against a plain model of
// the contract. CONVGRAD_SESSION_CALLS is the number of calls, 5,000 by
// default.
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/sessions/session_driver.h"

namespace convgrad {
namespace {

constexpr int kTrainers = 3;

int64_t CallsWanted() {
  const char* const text = std::getenv("CONVGRAD_SESSION_CALLS");
  int64_t calls = 5000;
  if (text != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &calls)) << text;
  }
  return calls;
}

TEST(SessionModel, TheServerDoesWhatTheModelDoes) {
  TestServer server;
  const int64_t calls = CallsWanted();
  std::vector<std::thread> trainers;
  for (int i = 0; i < kTrainers; ++i) {
    trainers.emplace_back([&server, calls, i] {
      SessionDriver driver(server.NewChannel(), 20261122 + i);
      while (driver.calls() < calls / kTrainers &&
             !::testing::Test::HasFailure()) {
        driver.Step();
      }
      driver.Finish();
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
  // Abandoned sessions end with their leases, and the open ones now.
  server.AwaitMetric("convgrad_kept_bytes 0");
  server.ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad
