// `DeviceFamilies` makes the metrics of devices.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Returns the families that have samples; none without devices. Thread-safe.
std::vector<prometheus::MetricFamily> DeviceFamilies(
    absl::Span<const DeviceGauges> devices);

}  // namespace convgrad
