#include "server/telemetry/gauge_families.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/telemetry/certificate_expiry.h"

namespace convgrad {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// The number of clients that have a label of their own at a time.
constexpr size_t kLabelledClients = 16;

// `Families` collects samples by the name of their family, in the order in
// which the families got their first one.
class Families {
 public:
  using Labels = std::vector<ClientMetric::Label>;

  template <typename Number>
  void Gauge(const char* name, const char* help, Number value,
             Labels labels = {}) {
    Add({name, help, MetricType::Gauge, {}}, static_cast<double>(value),
        std::move(labels));
  }
  template <typename Number>
  void Counter(const char* name, const char* help, Number value,
               Labels labels = {}) {
    Add({name, help, MetricType::Counter, {}}, static_cast<double>(value),
        std::move(labels));
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  void Add(const MetricFamily& family, double value, Labels labels) {
    auto found = std::find_if(
        families_.begin(), families_.end(),
        [&](const MetricFamily& other) { return other.name == family.name; });
    if (found == families_.end()) found = families_.insert(found, family);
    ClientMetric& metric = found->metric.emplace_back();
    metric.label = std::move(labels);
    // Only that of the family's type is printed.
    metric.gauge.value = metric.counter.value = value;
  }

  std::vector<MetricFamily> families_;
};

void AddQueues(absl::Span<const QueueGauges> queues, Families* all) {
  for (const QueueGauges& queue : queues) {
    const Families::Labels labels = {{"priority", queue.priority}};
    all->Gauge("convgrad_queue_depth", "Jobs waiting for a worker.",
               queue.depth, labels);
    all->Gauge("convgrad_estimated_wait_seconds",
               "What a new client's job would wait for a worker.",
               absl::ToDoubleSeconds(queue.estimated_wait), labels);
  }
}

void AddSingles(const ServerGauges& now, Families* all) {
  all->Gauge("convgrad_jobs_running", "Jobs on a worker.", now.jobs_running);
  all->Gauge("convgrad_memory_used_bytes", "Taken of the budget for calls.",
             now.memory_used_bytes);
  all->Gauge("convgrad_memory_capacity_bytes", "The budget for calls.",
             now.memory_capacity_bytes);
  all->Gauge("convgrad_admission_waiters",
             "Calls whose message waits for memory, unread.",
             now.admission_waiters);
  all->Gauge("convgrad_buffers", "Buffers in use.", now.buffers_outstanding);
  all->Gauge("convgrad_buffer_bytes", "Bytes of the buffers in use.",
             now.buffer_bytes_outstanding);
  all->Gauge("convgrad_buffer_idle_bytes", "Buffers kept for reuse.",
             now.buffer_bytes_idle);
  all->Gauge("convgrad_regions", "Shared-memory regions of connected clients.",
             now.regions);
  all->Gauge("convgrad_region_bytes", "Bytes of these regions.",
             now.region_bytes);
  all->Gauge("convgrad_sessions", "Open sessions.", now.sessions);
  all->Gauge("convgrad_kept_tensors", "Tensors that sessions keep.",
             now.kept_tensors);
  all->Gauge("convgrad_kept_programs", "Programs that sessions keep.",
             now.kept_programs);
  all->Gauge("convgrad_kept_tapes",
             "Tapes that sessions keep: of runs whose backward hasn't come.",
             now.kept_tapes);
  all->Gauge("convgrad_kept_tape_bytes", "Bytes of these tapes.",
             now.kept_tape_bytes);
  all->Gauge("convgrad_kept_bytes",
             "Bytes of kept tensors, programs and tapes, shared ones once.",
             now.kept_bytes);
  all->Gauge("convgrad_kept_capacity_bytes",
             "What sessions may keep, --max_kept_bytes.",
             now.kept_capacity_bytes);
  all->Counter("convgrad_sessions_expired_total", "Sessions whose lease ended.",
               now.sessions_expired);
  all->Counter("convgrad_session_repeats_total",
               "Repeated changes that were answered from the store.",
               now.session_repeats);
  all->Counter("convgrad_session_aborts_total", "Changes that were aborted.",
               now.session_aborts);
  all->Counter("convgrad_digest_hits_total",
               "Tensors put by their digest alone.", now.digest_hits);
  all->Counter("convgrad_digest_saved_bytes_total",
               "Bytes that weren't sent because of that.",
               now.digest_saved_bytes);
  all->Gauge("convgrad_plan_cache_bytes", "Bytes that cached plans hold.",
             now.plan_cache_bytes);
  all->Gauge("convgrad_plan_cache_plans", "Cached plans.",
             now.plan_cache_plans);
  all->Gauge("convgrad_weight_cache_bytes",
             "Weights kept in the form that plans compute with.",
             now.weight_cache_bytes);
  all->Counter("convgrad_weight_cache_hits_total",
               "Runs that found their weight so.", now.weight_cache_hits);
  all->Counter("convgrad_weight_cache_misses_total",
               "Runs that left theirs for later ones.",
               now.weight_cache_misses);
}

void AddClients(absl::Span<const ClientGauges> clients, Families* all) {
  const auto add = [all](const ClientGauges& client) {
    const Families::Labels labels = {{"client", client.client}};
    all->Gauge("convgrad_client_sessions", "Open sessions of one client.",
               client.sessions, labels);
    all->Gauge("convgrad_client_kept_bytes",
               "What one client's sessions keep, as its quota counts it.",
               client.kept_bytes, labels);
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
}

void AddDevices(absl::Span<const DeviceGauges> devices, Families* all) {
  for (const DeviceGauges& device : devices) {
    const auto add = [&](const char* name, const char* help,
                         std::optional<double> value) {
      if (!value) return;
      all->Gauge(name, help, *value,
                 {{"backend", device.backend},
                  {"device", absl::StrCat(device.index)}});
    };
    add("convgrad_device_up", "1 until an error takes the device out.",
        device.state.is_lost ? 0 : 1);
    add("convgrad_device_queue_depth",
        "Jobs waiting for a device of this backend: all share one queue.",
        device.queue_depth);
    add("convgrad_device_memory_bytes", "The device's memory.",
        device.state.memory_bytes);
    add("convgrad_device_memory_used_bytes",
        "Of it, what is taken, by all processes.",
        device.state.memory_used_bytes);
    add("convgrad_device_utilization_ratio",
        "Share of the last moments in which the device computed.",
        device.state.utilization);
  }
}

void AddProofs(absl::Span<const ProofGauges> proofs, Families* all) {
  for (const ProofGauges& backend : proofs) {
    const std::pair<const char*, int64_t> outcomes[] = {
        {"passed", backend.passed},
        {"failed", backend.failed},
        {"unmet", backend.unmet}};
    for (const auto& [outcome, count] : outcomes) {
      all->Counter("convgrad_proofs_total",
                   "Ways of computing that were held against the reference.",
                   count, {{"backend", backend.backend}, {"outcome", outcome}});
    }
    all->Gauge("convgrad_failed_proofs",
               "Families of operations that aren't computed as they should be.",
               backend.failed_families, {{"backend", backend.backend}});
  }
}

void AddDurability(const DurabilityGauges& now, Families* all) {
  for (const auto& [outcome, count] :
       {std::pair("written", now.snapshots_written),
        {"failed", now.snapshots_failed}}) {
    all->Counter("convgrad_snapshots_total", "Snapshots of durable sessions.",
                 count, {{"outcome", outcome}});
  }
  all->Counter("convgrad_snapshot_seconds_total", "Time of writing snapshots.",
               absl::ToDoubleSeconds(now.snapshot_time));
  all->Counter("convgrad_snapshot_bytes_total",
               "Bytes of the sessions in snapshots.", now.snapshot_bytes);
  all->Gauge("convgrad_undurable_age_seconds",
             "Age of the oldest change that isn't on disk yet.",
             absl::ToDoubleSeconds(now.undurable_age));
  all->Gauge("convgrad_sessions_on_disk",
             "Durable sessions that aren't in memory.", now.sessions_on_disk);
}

void AddCertificates(absl::Span<const CertificateFile> files, Families* all) {
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

std::vector<MetricFamily> GaugeFamilies(
    const ServerGauges& now, absl::Span<const CertificateFile> certificates) {
  Families all;
  AddQueues(now.queues, &all);
  AddSingles(now, &all);
  AddClients(now.clients, &all);
  AddDevices(now.devices, &all);
  AddProofs(now.proofs, &all);
  if (now.durability) AddDurability(*now.durability, &all);
  AddCertificates(certificates, &all);
  return all.Take();
}

}  // namespace convgrad
