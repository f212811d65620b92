// `ClientFamilies` makes the metrics of single clients.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// The number of clients that have their own label at a time.
inline constexpr size_t kLabelledClients = 16;

// Returns the families of clients' sessions: the first kLabelledClients of
// `clients` by name, all others summed as "other". Thread-safe.
std::vector<prometheus::MetricFamily> ClientFamilies(
    absl::Span<const ClientGauges> clients);

}  // namespace convgrad
