// Summarizes what a server did between two scrapes of its metrics
// (server/telemetry/README.md).
#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/cpp/command_line/activity/metrics_text.h"
#include "nlohmann/json_fwd.hpp"

namespace convgrad {

// Returns the document that `top --json` prints: values at the second scrape,
// rates and quantiles since the first, and `methods`, `operations` and `steps`
// of networks that were ever called or run, busiest steps first. Units are in
// the names. NaN, JSON's null: nothing was counted.
// Requires: elapsed > 0. Counts from 0 if the server was restarted in between.
nlohmann::ordered_json ActivityBetween(const MetricsText& before,
                                       const MetricsText& after,
                                       absl::Duration elapsed);

// Returns the same document as text: lines of totals, then tables of methods,
// operations and steps of networks. Omits rows whose rate is 0.
std::string ActivityText(const nlohmann::ordered_json& activity);

}  // namespace convgrad
