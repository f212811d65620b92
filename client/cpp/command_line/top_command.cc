#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/command_line/activity/metrics_text.h"
#include "client/cpp/command_line/activity/server_activity.h"
#include "client/cpp/command_line/commands.h"

namespace convgrad {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

absl::Status RunTop(const CommandContext& context) {
  const Settings& settings = context.settings;
  ASSIGN_OR_RETURN(MetricsText before,
                   FetchMetrics(settings.metrics, settings.timeout));
  Clock::time_point then = Clock::now();
  for (int64_t i = 0; settings.count == 0 || i < settings.count; ++i) {
    absl::SleepFor(settings.interval);
    ASSIGN_OR_RETURN(MetricsText after,
                     FetchMetrics(settings.metrics, settings.timeout));
    const Clock::time_point now = Clock::now();
    context.output->Activity(
        ActivityBetween(before, after, absl::FromChrono(now - then)));
    before = std::move(after);
    then = now;
  }
  return absl::OkStatus();
}

}  // namespace convgrad
