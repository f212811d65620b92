#include "server/rpc/transport/refusal_log.h"

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "backends/core/steady_now.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr int kLinesPerPeriod = 10;
constexpr size_t kMostMessageBytes = 500;

// Logs a limited number of lines per period, and counts the others.
class LimitedLog {
 public:
  // In `summary`, $0 stands for the number of lines that were left out.
  LimitedLog(spdlog::level::level_enum level, const char* summary)
      : level_(level), summary_(summary) {}

  void Log(const std::string& line) {
    int left_out = 0;
    {
      MutexLock lock(&mutex_);
      const absl::Time now = SteadyNow();
      if (now >= period_end_) {
        period_end_ = now + kPeriod;
        left_out = std::max(0, asked_ - kLinesPerPeriod);
        asked_ = 0;
      }
      if (++asked_ > kLinesPerPeriod) return;
    }
    if (left_out > 0) spdlog::log(level_, absl::Substitute(summary_, left_out));
    spdlog::log(level_, line);
  }

 private:
  const spdlog::level::level_enum level_;
  const char* const summary_;
  Mutex mutex_;
  absl::Time period_end_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // The lines of this period.
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void LogRefusal(absl::string_view peer, absl::string_view reason) {
  static LimitedLog* const kLog = new LimitedLog(
      spdlog::level::warn, "$0 more connections were refused before");
  kLog->Log(absl::StrCat("refused the connection of ", peer, ": ", reason));
}

void LogGrpcError(absl::string_view message) {
  static LimitedLog* const kLog =
      new LimitedLog(spdlog::level::err, "gRPC: $0 more errors before");
  kLog->Log(absl::StrCat(
      "gRPC: ", absl::CHexEscape(message.substr(0, kMostMessageBytes))));
}

void LogProtobufError(absl::string_view message) {
  static LimitedLog* const kLog =
      new LimitedLog(spdlog::level::warn, "protobuf: $0 more errors before");
  kLog->Log(absl::StrCat(
      "protobuf: ", absl::CHexEscape(message.substr(0, kMostMessageBytes))));
}

void LogFailedSelfCheck(absl::string_view operation,
                        absl::string_view implementation) {
  static LimitedLog* const kLog =
      new LimitedLog(spdlog::level::warn, "$0 more self-checks failed before");
  kLog->Log(
      absl::StrCat("self-check failed: ", operation, " by ", implementation));
}

}  // namespace convgrad
