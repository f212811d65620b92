#include "server/telemetry/metrics_endpoint.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/telemetry/gauge_families.h"
#include "server/telemetry/operation_metrics.h"
#include "server/telemetry/rpc_metrics.h"

namespace convgrad {
namespace {

// Makes families of Readings at each scrape.
class GaugeCollector final : public prometheus::Collectable {
 public:
  explicit GaugeCollector(const MetricsOptions& options)
      : gauges_(options.gauges), certificates_(options.certificates) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    return GaugeFamilies(gauges_ ? gauges_() : Readings(), certificates_);
  }

 private:
  const std::function<Readings()> gauges_;
  const std::vector<CertificateFile> certificates_;
};

// A connection occupies a thread of civetweb until its request is complete. The
// library's defaults, 2 threads and 30 s, would let a few half-sent requests
// block the scraper. Here 300 of them take 5 s, half of Prometheus' patience.
std::vector<std::string> HttpOptions(const std::string& address) {
  return {"listening_ports",    address, "num_threads",       "32",
          "request_timeout_ms", "500",   "enable_keep_alive", "no"};
}

class PrometheusEndpoint final : public MetricsEndpoint, private OpObserver {
 public:
  explicit PrometheusEndpoint(const MetricsOptions& options)
      : registry_(std::make_shared<prometheus::Registry>()),
        gauges_(std::make_shared<GaugeCollector>(options)),
        rpcs_(registry_.get(), options.methods),
        operations_(registry_.get(), options.backends, options.operations) {
    prometheus::BuildGauge()
        .Name("convgrad_build_info")
        .Help("Always 1; what is running, as labels.")
        .Register(*registry_)
        .Add({{"version", options.version},
              {"compiler", __VERSION__},
              {"backends", absl::StrJoin(options.backends, ",")}})
        .Set(1);
  }

  absl::Status Listen(const std::string& address) {
    // civetweb throws if it can't bind.
    try {
      exposer_ = std::make_unique<prometheus::Exposer>(HttpOptions(address));
    } catch (const std::exception& error) {
      return OutOfRange("--metrics_listen",
                        absl::StrCat("'", address, "' (", error.what(), ")"),
                        "host:port of IPv4 that is free");
    }
    exposer_->RegisterCollectable(registry_);
    exposer_->RegisterCollectable(gauges_);
    return absl::OkStatus();
  }

  OpObserver* observer() override { return this; }

  int port() const override {
    return exposer_ == nullptr ? 0 : exposer_->GetListeningPorts().front();
  }

  std::string Text() const override {
    std::vector<prometheus::MetricFamily> families = registry_->Collect();
    for (prometheus::MetricFamily& gauge : gauges_->Collect()) {
      families.push_back(std::move(gauge));
    }
    return prometheus::TextSerializer().Serialize(families);
  }

 private:
  void OnStarted(absl::string_view method) override { rpcs_.OnStarted(method); }
  void OnHandled(absl::string_view method, absl::StatusCode code,
                 absl::Duration elapsed) override {
    rpcs_.OnHandled(method, code, elapsed);
  }
  void OnOperation(const OpSample& sample) override {
    operations_.OnOperation(sample);
  }

  const std::shared_ptr<prometheus::Registry> registry_;
  const std::shared_ptr<GaugeCollector> gauges_;
  RpcMetrics rpcs_;
  OperationMetrics operations_;
  // Declared last, so that scraping stops before the other members are
  // destroyed.
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const MetricsOptions& options) {
  auto endpoint = std::make_unique<PrometheusEndpoint>(options);
  if (!options.listen.empty()) {
    RETURN_IF_ERROR(endpoint->Listen(options.listen));
  }
  return endpoint;
}

}  // namespace convgrad
