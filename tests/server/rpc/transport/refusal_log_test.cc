#include "server/rpc/transport/refusal_log.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

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
  // Ten lines a second; the calls take less than five seconds.
  EXPECT_LT(text.size(), 5 * 11 * 600u);
}

}  // namespace
}  // namespace convgrad
