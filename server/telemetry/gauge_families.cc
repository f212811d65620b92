#include "server/telemetry/gauge_families.h"

#include <algorithm>
#include <optional>

#include "server/telemetry/certificate_expiry.h"

namespace convgrad {
namespace {

void AddCertificates(absl::Span<const CertificateFile> files, Readings* all) {
  for (const CertificateFile& file : files) {
    if (file.path.empty()) continue;
    const std::optional<double> end = FirstExpiration(file.path);
    if (!end) continue;
    all->Gauge("convgrad_certificate_expiration_timestamp_seconds",
               "When the first certificate in use of the file expires.", *end,
               {{"flag", file.flag}});
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> GaugeFamilies(
    Readings now, absl::Span<const CertificateFile> certificates) {
  AddCertificates(certificates, &now);
  std::vector<prometheus::MetricFamily> families;
  for (const Readings::Reading& reading : now.all()) {
    auto found = std::find_if(
        families.begin(), families.end(),
        [&](const auto& family) { return family.name == reading.name; });
    if (found == families.end()) {
      using prometheus::MetricType;
      const MetricType type =
          reading.is_counter ? MetricType::Counter : MetricType::Gauge;
      found = families.insert(found, {reading.name, reading.help, type, {}});
    }
    prometheus::ClientMetric& metric = found->metric.emplace_back();
    for (const auto& [name, value] : reading.labels) {
      metric.label.push_back({name, value});
    }
    // Only that of the family's type is printed.
    metric.gauge.value = metric.counter.value = reading.value;
  }
  return families;
}

}  // namespace convgrad
