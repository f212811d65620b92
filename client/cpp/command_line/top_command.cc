#include <utility>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "client/cpp/command_line/activity/metrics_text.h"
#include "client/cpp/command_line/activity/server_activity.h"
#include "client/cpp/command_line/commands.h"

namespace convgrad {

absl::Status RunTop(const CommandContext& context) {
  const Settings& settings = context.settings;
  ASSIGN_OR_RETURN(MetricsText before,
                   FetchMetrics(settings.metrics, settings.timeout));
  absl::Time then = SteadyNow();
  for (int64_t i = 0; settings.count == 0 || i < settings.count; ++i) {
    absl::SleepFor(settings.interval);
    ASSIGN_OR_RETURN(MetricsText after,
                     FetchMetrics(settings.metrics, settings.timeout));
    const absl::Time now = SteadyNow();
    const auto activity = ActivityBetween(before, after, now - then);
    context.output->PrintNext(activity, ActivityText(activity));
    before = std::move(after);
    then = now;
  }
  return absl::OkStatus();
}

}  // namespace convgrad
