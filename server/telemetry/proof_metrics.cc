#include "server/telemetry/proof_metrics.h"

#include <string>
#include <utility>

namespace convgrad {

std::vector<prometheus::MetricFamily> ProofMetrics(
    absl::Span<const ProofGauges> proofs) {
  if (proofs.empty()) return {};
  prometheus::MetricFamily total{
      "convgrad_proofs_total",
      "Ways of computing that were held against the reference.",
      prometheus::MetricType::Counter,
      {}};
  prometheus::MetricFamily failed{
      "convgrad_failed_proofs",
      "Families of operations that aren't computed as they should be.",
      prometheus::MetricType::Gauge,
      {}};
  for (const ProofGauges& backend : proofs) {
    const std::pair<const char*, int64_t> outcomes[] = {
        {"passed", backend.passed},
        {"failed", backend.failed},
        {"unmet", backend.unmet}};
    for (const auto& [outcome, count] : outcomes) {
      prometheus::ClientMetric& metric = total.metric.emplace_back();
      metric.label = {{"backend", backend.backend}, {"outcome", outcome}};
      metric.counter.value = static_cast<double>(count);
    }
    prometheus::ClientMetric& metric = failed.metric.emplace_back();
    metric.label = {{"backend", backend.backend}};
    metric.gauge.value = static_cast<double>(backend.failed_families);
  }
  return {std::move(total), std::move(failed)};
}

}  // namespace convgrad
