#include "server/rpc/transport/refusal_log.h"

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "backends/core/steady_now.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr int kLinesPerPeriod = 10;
constexpr size_t kMostMessageBytes = 500;

class LineLimit {
 public:
  // Returns whether one more line may be written. Sets `*left_out` to the
  // number of lines that were refused in the periods before.
  bool Allows(absl::Time now, int* left_out) {
    MutexLock lock(&mutex_);
    *left_out = 0;
    if (now >= period_end_) {
      period_end_ = now + kPeriod;
      *left_out = std::max(0, asked_ - kLinesPerPeriod);
      asked_ = 0;
    }
    return ++asked_ <= kLinesPerPeriod;
  }

 private:
  Mutex mutex_;
  absl::Time period_end_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void LogRefusal(absl::string_view peer, absl::string_view reason) {
  static LineLimit* const kLimit = new LineLimit;
  int left_out = 0;
  if (!kLimit->Allows(SteadyNow(), &left_out)) return;
  if (left_out > 0) {
    spdlog::warn("{} more connections were refused before", left_out);
  }
  spdlog::warn("refused the connection of {}: {}", std::string(peer),
               std::string(reason));
}

void LogGrpcError(absl::string_view message) {
  static LineLimit* const kLimit = new LineLimit;
  int left_out = 0;
  if (!kLimit->Allows(SteadyNow(), &left_out)) return;
  if (left_out > 0) spdlog::error("gRPC: {} more errors before", left_out);
  spdlog::error("gRPC: {}",
                absl::CHexEscape(message.substr(0, kMostMessageBytes)));
}

}  // namespace convgrad
