// What /metrics says of backends' proofs.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Returns no families if no backend proves itself.
std::vector<prometheus::MetricFamily> ProofMetrics(
    absl::Span<const ProofGauges> proofs);

}  // namespace convgrad
