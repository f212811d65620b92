#include "server/telemetry/gauge_families.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/telemetry/certificate_expiry.h"

namespace convgrad {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

// The number of clients that have a label of their own at a time.
constexpr size_t kLabelledClients = 16;

// Adds a sample to `family`.
template <typename Number>
void Add(std::vector<ClientMetric::Label> labels, Number value,
         MetricFamily* family) {
  ClientMetric& metric = family->metric.emplace_back();
  metric.label = std::move(labels);
  // Only that of the family's type is printed.
  metric.gauge.value = static_cast<double>(value);
  metric.counter.value = static_cast<double>(value);
}

// These functions return a family, with a sample if it has one without labels.
MetricFamily Gauge(const char* name, const char* help,
                   std::optional<double> value = std::nullopt) {
  MetricFamily family = {name, help, prometheus::MetricType::Gauge, {}};
  if (value) Add({}, *value, &family);
  return family;
}

MetricFamily Counter(const char* name, const char* help,
                     std::optional<double> value = std::nullopt) {
  MetricFamily family = Gauge(name, help, value);
  family.type = prometheus::MetricType::Counter;
  return family;
}

std::vector<MetricFamily> QueueFamilies(absl::Span<const QueueGauges> queues) {
  MetricFamily depth =
      Gauge("convgrad_queue_depth", "Jobs waiting for a worker.");
  MetricFamily wait = Gauge("convgrad_estimated_wait_seconds",
                            "What a new client's job would wait for a worker.");
  for (const QueueGauges& queue : queues) {
    Add({{"priority", queue.priority}}, queue.depth, &depth);
    Add({{"priority", queue.priority}},
        absl::ToDoubleSeconds(queue.estimated_wait), &wait);
  }
  return {std::move(depth), std::move(wait)};
}

std::vector<MetricFamily> SingleFamilies(const ServerGauges& now) {
  return {
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
      Counter("convgrad_sessions_expired_total", "Sessions whose lease ended.",
              now.sessions_expired),
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
      Gauge("convgrad_plan_cache_plans", "Cached plans.", now.plan_cache_plans),
      Gauge("convgrad_weight_cache_bytes",
            "Weights kept in the form that plans compute with.",
            now.weight_cache_bytes),
      Counter("convgrad_weight_cache_hits_total",
              "Runs that found their weight so.", now.weight_cache_hits),
      Counter("convgrad_weight_cache_misses_total",
              "Runs that left theirs for later ones.", now.weight_cache_misses),
  };
}

std::vector<MetricFamily> ClientFamilies(
    absl::Span<const ClientGauges> clients) {
  MetricFamily sessions =
      Gauge("convgrad_client_sessions", "Open sessions of one client.");
  MetricFamily kept_bytes =
      Gauge("convgrad_client_kept_bytes",
            "What one client's sessions keep, as its quota counts it.");
  const auto add = [&](const ClientGauges& client) {
    Add({{"client", client.client}}, client.sessions, &sessions);
    Add({{"client", client.client}}, client.kept_bytes, &kept_bytes);
  };
  // A client may have the name "other" as well.
  ClientGauges others{"other"};
  for (size_t i = 0; i < clients.size(); ++i) {
    if (i < kLabelledClients && clients[i].client != others.client) {
      add(clients[i]);
    } else {
      others.sessions += clients[i].sessions;
      others.kept_bytes += clients[i].kept_bytes;
    }
  }
  if (others.sessions > 0) add(others);
  return {std::move(sessions), std::move(kept_bytes)};
}

std::vector<MetricFamily> DeviceFamilies(
    absl::Span<const DeviceGauges> devices) {
  MetricFamily up =
      Gauge("convgrad_device_up", "1 until an error takes the device out.");
  MetricFamily depth =
      Gauge("convgrad_device_queue_depth",
            "Jobs waiting for a device of this backend: all share one queue.");
  MetricFamily memory =
      Gauge("convgrad_device_memory_bytes", "The device's memory.");
  MetricFamily used = Gauge("convgrad_device_memory_used_bytes",
                            "Of it, what is taken, by all processes.");
  MetricFamily utilization =
      Gauge("convgrad_device_utilization_ratio",
            "Share of the last moments in which the device computed.");
  for (const DeviceGauges& device : devices) {
    const auto add = [&](std::optional<double> value, MetricFamily* family) {
      if (!value) return;
      Add({{"backend", device.backend}, {"device", absl::StrCat(device.index)}},
          *value, family);
    };
    add(device.state.is_lost ? 0 : 1, &up);
    add(device.queue_depth, &depth);
    add(device.state.memory_bytes, &memory);
    add(device.state.memory_used_bytes, &used);
    add(device.state.utilization, &utilization);
  }
  return {std::move(up), std::move(depth), std::move(memory), std::move(used),
          std::move(utilization)};
}

std::vector<MetricFamily> ProofFamilies(absl::Span<const ProofGauges> proofs) {
  MetricFamily total =
      Counter("convgrad_proofs_total",
              "Ways of computing that were held against the reference.");
  MetricFamily failed =
      Gauge("convgrad_failed_proofs",
            "Families of operations that aren't computed as they should be.");
  for (const ProofGauges& backend : proofs) {
    const std::pair<const char*, int64_t> outcomes[] = {
        {"passed", backend.passed},
        {"failed", backend.failed},
        {"unmet", backend.unmet}};
    for (const auto& [outcome, count] : outcomes) {
      Add({{"backend", backend.backend}, {"outcome", outcome}}, count, &total);
    }
    Add({{"backend", backend.backend}}, backend.failed_families, &failed);
  }
  return {std::move(total), std::move(failed)};
}

std::vector<MetricFamily> DurabilityFamilies(
    const std::optional<DurabilityGauges>& durability) {
  if (!durability) return {};
  const DurabilityGauges& now = *durability;
  MetricFamily snapshots =
      Counter("convgrad_snapshots_total", "Snapshots of durable sessions.");
  Add({{"outcome", "written"}}, now.snapshots_written, &snapshots);
  Add({{"outcome", "failed"}}, now.snapshots_failed, &snapshots);
  return {
      std::move(snapshots),
      Counter("convgrad_snapshot_seconds_total", "Time of writing snapshots.",
              absl::ToDoubleSeconds(now.snapshot_time)),
      Counter("convgrad_snapshot_bytes_total",
              "Bytes of the sessions in snapshots.", now.snapshot_bytes),
      Gauge("convgrad_undurable_age_seconds",
            "Age of the oldest change that isn't on disk yet.",
            absl::ToDoubleSeconds(now.undurable_age)),
      Gauge("convgrad_sessions_on_disk",
            "Durable sessions that aren't in memory.", now.sessions_on_disk)};
}

std::vector<MetricFamily> CertificateFamilies(
    absl::Span<const CertificateFile> files) {
  MetricFamily family =
      Gauge("convgrad_certificate_expiration_timestamp_seconds",
            "When the first certificate in use of the file expires.");
  for (const CertificateFile& file : files) {
    if (file.path.empty()) continue;
    const std::optional<double> end = FirstExpiration(file.path);
    if (end) Add({{"flag", file.flag}}, *end, &family);
  }
  return {std::move(family)};
}

}  // namespace

std::vector<MetricFamily> GaugeFamilies(
    const ServerGauges& now, absl::Span<const CertificateFile> certificates) {
  std::vector<MetricFamily> families;
  const auto add = [&](std::vector<MetricFamily> more) {
    for (MetricFamily& family : more) {
      if (!family.metric.empty()) families.push_back(std::move(family));
    }
  };
  add(QueueFamilies(now.queues));
  add(SingleFamilies(now));
  add(ClientFamilies(now.clients));
  add(DeviceFamilies(now.devices));
  add(ProofFamilies(now.proofs));
  add(DurabilityFamilies(now.durability));
  add(CertificateFamilies(certificates));
  return families;
}

}  // namespace convgrad
