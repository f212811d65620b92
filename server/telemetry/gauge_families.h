// `GaugeFamilies` makes the metrics that are read at each scrape.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/metrics_endpoint.h"

namespace convgrad {

// Returns the families of `now` and of the files' expiry that have a sample, in
// the order of their first one. Thread-safe.
std::vector<prometheus::MetricFamily> GaugeFamilies(
    Readings now, absl::Span<const CertificateFile> certificates);

}  // namespace convgrad
