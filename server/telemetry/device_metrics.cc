#include "server/telemetry/device_metrics.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace convgrad {
namespace {

using Value = std::function<std::optional<double>(const DeviceGauges&)>;

void AddFamily(const char* name, const char* help,
               absl::Span<const DeviceGauges> devices, const Value& value,
               std::vector<prometheus::MetricFamily>* families) {
  prometheus::MetricFamily family{
      name, help, prometheus::MetricType::Gauge, {}};
  for (const DeviceGauges& device : devices) {
    const std::optional<double> number = value(device);
    if (!number) continue;
    prometheus::ClientMetric metric;
    metric.label = {{"backend", device.backend},
                    {"device", absl::StrCat(device.index)}};
    metric.gauge.value = *number;
    family.metric.push_back(std::move(metric));
  }
  if (!family.metric.empty()) families->push_back(std::move(family));
}

}  // namespace

std::vector<prometheus::MetricFamily> DeviceFamilies(
    absl::Span<const DeviceGauges> devices) {
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&](const char* name, const char* help, const Value& value) {
    AddFamily(name, help, devices, value, &families);
  };
  add("convgrad_device_up", "1 until an error takes the device out.",
      [](const DeviceGauges& device) { return device.state.is_lost ? 0 : 1; });
  add("convgrad_device_queue_depth",
      "Jobs waiting for a device of this backend: all share one queue.",
      [](const DeviceGauges& device) { return device.queue_depth; });
  add("convgrad_device_memory_bytes", "The device's memory.",
      [](const DeviceGauges& device) { return device.state.memory_bytes; });
  add("convgrad_device_memory_used_bytes",
      "Of it, what is taken, by all processes.",
      [](const DeviceGauges& device) {
        return device.state.memory_used_bytes;
      });
  add("convgrad_device_utilization_ratio",
      "Share of the last moments in which the device computed.",
      [](const DeviceGauges& device) { return device.state.utilization; });
  return families;
}

}  // namespace convgrad
