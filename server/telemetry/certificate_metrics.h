// `CertificateFamilies` makes the metrics of certificates' expiry.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/metrics_endpoint.h"

namespace convgrad {

// Reads each file and returns the time when the first of its certificates
// expires. A file that can't be read, or holds no certificate, has no sample.
// Without any sample there is no family. Thread-safe.
std::vector<prometheus::MetricFamily> CertificateFamilies(
    absl::Span<const CertificateFile> files);

}  // namespace convgrad
