#include "server/telemetry/client_metrics.h"

#include <algorithm>
#include <string>
#include <utility>

namespace convgrad {
namespace {

// Returns `clients`, with those beyond kLabelledClients summed in one.
std::vector<ClientGauges> Bounded(absl::Span<const ClientGauges> clients) {
  const size_t labelled = std::min(clients.size(), kLabelledClients);
  std::vector<ClientGauges> bounded(clients.begin(),
                                    clients.begin() + labelled);
  if (labelled == clients.size()) return bounded;
  ClientGauges others{"other"};
  for (const ClientGauges& client : clients.subspan(labelled)) {
    others.sessions += client.sessions;
    others.kept_bytes += client.kept_bytes;
  }
  bounded.push_back(std::move(others));
  return bounded;
}

prometheus::MetricFamily Family(const char* name, const char* help,
                                absl::Span<const ClientGauges> clients,
                                int64_t ClientGauges::*value) {
  prometheus::MetricFamily family{
      name, help, prometheus::MetricType::Gauge, {}};
  for (const ClientGauges& client : clients) {
    prometheus::ClientMetric metric;
    metric.label = {{"client", client.client}};
    metric.gauge.value = static_cast<double>(client.*value);
    family.metric.push_back(std::move(metric));
  }
  return family;
}

}  // namespace

std::vector<prometheus::MetricFamily> ClientFamilies(
    absl::Span<const ClientGauges> clients) {
  if (clients.empty()) return {};
  const std::vector<ClientGauges> bounded = Bounded(clients);
  return {Family("convgrad_client_sessions", "Open sessions of one client.",
                 bounded, &ClientGauges::sessions),
          Family("convgrad_client_kept_bytes",
                 "What one client's sessions keep, as its quota counts it.",
                 bounded, &ClientGauges::kept_bytes)};
}

}  // namespace convgrad
