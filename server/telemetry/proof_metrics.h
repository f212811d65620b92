// `ProofMetrics` makes the metrics of backends' proofs.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Returns the families of `proofs`; none if no backend has proofs. Thread-safe.
std::vector<prometheus::MetricFamily> ProofMetrics(
    absl::Span<const ProofGauges> proofs);

}  // namespace convgrad
