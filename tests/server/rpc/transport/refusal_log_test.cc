#include "server/rpc/transport/refusal_log.h"

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "convgrad/v1/network.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/transport/tls_failures.h"
#include "tests/client/cpp/stand_in_clock.h"

namespace convgrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RefusalLog, ErrorsOfGrpcForgeNoLinesAndFillNoDisk) {
  testing::internal::CaptureStdout();
  const std::string forged = "value=1\n[info] forged";
  for (int i = 0; i < 1000; ++i) {
    LogGrpcError(forged + std::string(8000, 'x'));
  }
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("gRPC: value=1\\n[info] forged"));
  EXPECT_THAT(text, Not(HasSubstr("\n[info]")));
  EXPECT_THAT(text, Not(HasSubstr("gRPC: 0 more")));
  // Ten lines a second; the calls take less than five seconds.
  EXPECT_LT(text.size(), 5 * 11 * 600u);
}

TEST(RefusalLog, MalformedMessagesAndFailedChecksFillNoDisk) {
  TakeLibraryLogs();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  v1::LoadProgramRequest request;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(request.ParseFromString("\x0a\x01\xff"));
    LogFailedSelfCheck("an operation", "a kernel");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("convgrad.v1.LoadProgramRequest.name"));
  EXPECT_THAT(text, HasSubstr("self-check failed: an operation by a kernel\n"));
  EXPECT_LT(text.size(), 5 * 2 * 11 * 600u);
}

TEST(RefusalLog, GoesOnAfterTheClockWasSetBack) {
  std::thread([] {
    SetClockBack();
    LogGrpcError("by the fast clock");
  }).join();
  // The rest of the period's lines.
  for (int i = 0; i < 10; ++i) LogGrpcError("by the right clock");
  absl::SleepFor(absl::Milliseconds(1100));
  testing::internal::CaptureStdout();
  LogGrpcError("in the next period");
  EXPECT_THAT(
      testing::internal::GetCapturedStdout(),
      ContainsRegex("[1-9] more errors before\n.*in the next period\n"));
}

}  // namespace
}  // namespace convgrad
