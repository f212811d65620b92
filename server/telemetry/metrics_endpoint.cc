#include "server/telemetry/metrics_endpoint.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/status.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/telemetry/certificate_metrics.h"
#include "server/telemetry/client_metrics.h"
#include "server/telemetry/device_metrics.h"
#include "server/telemetry/operation_metrics.h"
#include "server/telemetry/proof_metrics.h"
#include "server/telemetry/rpc_metrics.h"

namespace convgrad {
namespace {

// Makes families of ServerGauges at each scrape.
class GaugeCollector final : public prometheus::Collectable {
 public:
  explicit GaugeCollector(const MetricsOptions& options)
      : gauges_(options.gauges), certificates_(options.certificates) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const ServerGauges now = gauges_ ? gauges_() : ServerGauges{};
    prometheus::MetricFamily depth =
        Family("convgrad_queue_depth", "Jobs waiting for a worker.");
    prometheus::MetricFamily wait =
        Family("convgrad_estimated_wait_seconds",
               "What a new client's job would wait for a worker.");
    for (const QueueGauges& queue : now.queues) {
      depth.metric.push_back(Labelled(queue, queue.depth));
      wait.metric.push_back(
          Labelled(queue, absl::ToDoubleSeconds(queue.estimated_wait)));
    }
    std::vector<prometheus::MetricFamily> families = {
        std::move(depth),
        std::move(wait),
        Gauge("convgrad_jobs_running", "Jobs on a worker.", now.jobs_running),
        Gauge("convgrad_memory_used_bytes", "Taken of the budget for calls.",
              now.memory_used_bytes),
        Gauge("convgrad_memory_capacity_bytes", "The budget for calls.",
              now.memory_capacity_bytes),
        Gauge("convgrad_admission_waiters",
              "Calls whose message waits for memory, unread.",
              now.admission_waiters),
        Gauge("convgrad_buffers", "Buffers in use.", now.buffers_outstanding),
        Gauge("convgrad_buffer_bytes", "Bytes of the buffers in use.",
              now.buffer_bytes_outstanding),
        Gauge("convgrad_buffer_idle_bytes", "Buffers kept for reuse.",
              now.buffer_bytes_idle),
        Gauge("convgrad_regions", "Shared-memory regions of connected clients.",
              now.regions),
        Gauge("convgrad_region_bytes", "Bytes of these regions.",
              now.region_bytes),
        Gauge("convgrad_sessions", "Open sessions.", now.sessions),
        Gauge("convgrad_kept_tensors", "Tensors that sessions keep.",
              now.kept_tensors),
        Gauge("convgrad_kept_programs", "Programs that sessions keep.",
              now.kept_programs),
        Gauge("convgrad_kept_tapes",
              "Tapes that sessions keep: of runs whose backward hasn't come.",
              now.kept_tapes),
        Gauge("convgrad_kept_tape_bytes", "Bytes of these tapes.",
              now.kept_tape_bytes),
        Gauge("convgrad_kept_bytes",
              "Bytes of kept tensors, programs and tapes, shared ones once.",
              now.kept_bytes),
        Gauge("convgrad_kept_capacity_bytes",
              "What sessions may keep, --max_kept_bytes.",
              now.kept_capacity_bytes),
        Counter("convgrad_sessions_expired_total",
                "Sessions whose lease ended.", now.sessions_expired),
        Counter("convgrad_session_repeats_total",
                "Repeated changes that were answered from the store.",
                now.session_repeats),
        Counter("convgrad_session_aborts_total", "Changes that were aborted.",
                now.session_aborts),
        Counter("convgrad_digest_hits_total",
                "Tensors put by their digest alone.", now.digest_hits),
        Counter("convgrad_digest_saved_bytes_total",
                "Bytes that weren't sent because of that.",
                now.digest_saved_bytes),
        Gauge("convgrad_plan_cache_bytes", "Bytes that cached plans hold.",
              now.plan_cache_bytes),
        Gauge("convgrad_plan_cache_plans", "Cached plans.",
              now.plan_cache_plans),
        Gauge("convgrad_weight_cache_bytes",
              "Weights kept in the form that plans compute with.",
              now.weight_cache_bytes),
        Counter("convgrad_weight_cache_hits_total",
                "Runs that found their weight so.", now.weight_cache_hits),
        Counter("convgrad_weight_cache_misses_total",
                "Runs that left theirs for later ones.",
                now.weight_cache_misses),
    };
    for (prometheus::MetricFamily& family : ClientFamilies(now.clients)) {
      families.push_back(std::move(family));
    }
    for (prometheus::MetricFamily& family : DeviceFamilies(now.devices)) {
      families.push_back(std::move(family));
    }
    for (prometheus::MetricFamily& family : ProofMetrics(now.proofs)) {
      families.push_back(std::move(family));
    }
    for (prometheus::MetricFamily& family :
         CertificateFamilies(certificates_)) {
      families.push_back(std::move(family));
    }
    return families;
  }

 private:
  static prometheus::MetricFamily Family(const char* name, const char* help) {
    return {name, help, prometheus::MetricType::Gauge, {}};
  }
  static prometheus::MetricFamily Gauge(const char* name, const char* help,
                                        int64_t value) {
    prometheus::MetricFamily family = Family(name, help);
    family.metric.emplace_back().gauge.value = static_cast<double>(value);
    return family;
  }
  static prometheus::MetricFamily Counter(const char* name, const char* help,
                                          int64_t value) {
    prometheus::MetricFamily family{
        name, help, prometheus::MetricType::Counter, {}};
    family.metric.emplace_back().counter.value = static_cast<double>(value);
    return family;
  }
  static prometheus::ClientMetric Labelled(const QueueGauges& queue,
                                           double value) {
    prometheus::ClientMetric metric;
    metric.label = {{"priority", queue.priority}};
    metric.gauge.value = value;
    return metric;
  }

  const std::function<ServerGauges()> gauges_;
  const std::vector<CertificateFile> certificates_;
};

// A connection occupies a thread of civetweb until its request is complete.
// With the library's defaults, 2 threads and 30 s, a few half-sent requests
// block the scraper for a minute.
std::vector<std::string> HttpOptions(const std::string& address) {
  return {"listening_ports",    address, "num_threads",       "4",
          "request_timeout_ms", "1000",  "enable_keep_alive", "no"};
}

class PrometheusEndpoint final : public MetricsEndpoint, private OpObserver {
 public:
  explicit PrometheusEndpoint(const MetricsOptions& options)
      : registry_(std::make_shared<prometheus::Registry>()),
        gauges_(std::make_shared<GaugeCollector>(options)),
        rpcs_(registry_.get()),
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
      return InvalidField(Reason::kOutOfRange, "--metrics_listen",
                          absl::StrCat("'", address, "' (", error.what(), ")"),
                          "host:port that is free");
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
