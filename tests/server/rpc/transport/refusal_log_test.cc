#include "server/rpc/transport/refusal_log.h"

#include <memory>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Takes the lines of spdlog's default logger while it exists.
class LogLines {
 public:
  LogLines() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_)));
  }
  ~LogLines() { spdlog::set_default_logger(before_); }
  std::string text() const { return lines_.str(); }

 private:
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream lines_;
};

TEST(RefusalLog, ErrorsOfGrpcForgeNoLinesAndFillNoDisk) {
  const LogLines log;
  const std::string forged = "value=1\n[info] forged";
  for (int i = 0; i < 1000; ++i) {
    LogGrpcError(forged + std::string(8000, 'x'));
  }
  EXPECT_THAT(log.text(), HasSubstr("gRPC: value=1\\n[info] forged"));
  EXPECT_THAT(log.text(), Not(HasSubstr("\n[info]")));
  // Ten lines a second; the calls take less than five seconds.
  EXPECT_LT(log.text().size(), 5 * 11 * 600u);
}

}  // namespace
}  // namespace convgrad
