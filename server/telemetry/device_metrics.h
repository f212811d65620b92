// What /metrics says of devices.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Returns the families that have something to say: none without devices.
std::vector<prometheus::MetricFamily> DeviceFamilies(
    absl::Span<const DeviceGauges> devices);

}  // namespace convgrad
