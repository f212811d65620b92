#include "server/server_readings.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/compute_engine.h"

namespace convgrad {
namespace {

// The number of clients that have a label of their own at a time.
constexpr size_t kLabelledClients = 16;

void AddQueues(const Scheduler& scheduler, Readings* all) {
  for (const Priority priority : kAllPriorities) {
    const Readings::Labels labels = {
        {"priority", std::string(NameOf(priority))}};
    all->Gauge("convgrad_queue_depth", "Jobs waiting for a worker.",
               scheduler.queue_depth(priority), labels);
    all->Gauge("convgrad_estimated_wait_seconds",
               "What a new client's job would wait for a worker.",
               absl::ToDoubleSeconds(scheduler.EstimatedWait(priority)),
               labels);
  }
  all->Gauge("convgrad_jobs_running", "Jobs on a worker.", scheduler.running());
}

void AddMemory(const CallMemory& memory, const RegionRegistry& regions,
               Readings* all) {
  all->Gauge("convgrad_memory_used_bytes", "Taken of the budget for calls.",
             memory.budget.used_bytes());
  all->Gauge("convgrad_memory_capacity_bytes", "The budget for calls.",
             memory.budget.capacity_bytes());
  all->Gauge("convgrad_admission_waiters",
             "Calls whose message waits for memory, unread.",
             memory.budget.waiters());
  all->Gauge("convgrad_buffers", "Buffers in use.", memory.pool.outstanding());
  all->Gauge("convgrad_buffer_bytes", "Bytes of the buffers in use.",
             memory.pool.outstanding_bytes());
  all->Gauge("convgrad_buffer_idle_bytes", "Buffers kept for reuse.",
             memory.pool.idle_bytes());
  all->Gauge("convgrad_regions", "Shared-memory regions of connected clients.",
             regions.regions());
  all->Gauge("convgrad_region_bytes", "Bytes of these regions.",
             regions.region_bytes());
}

void AddSessions(const SessionTable& sessions, Readings* all) {
  const SessionTable::Contents kept = sessions.contents();
  all->Gauge("convgrad_sessions", "Open sessions.", sessions.sessions());
  all->Gauge("convgrad_kept_tensors", "Tensors that sessions keep.",
             kept.tensors);
  all->Gauge("convgrad_kept_programs", "Programs that sessions keep.",
             kept.programs);
  all->Gauge("convgrad_kept_tapes",
             "Tapes that sessions keep: of runs whose backward hasn't come.",
             kept.tapes);
  all->Gauge("convgrad_kept_tape_bytes", "Bytes of these tapes.",
             kept.tape_bytes);
  all->Gauge("convgrad_kept_bytes",
             "Bytes of kept tensors, programs and tapes, shared ones once.",
             sessions.memory()->used_bytes());
  all->Gauge("convgrad_kept_capacity_bytes",
             "What sessions may keep, --max_kept_bytes.",
             sessions.memory()->max_bytes());
  all->Counter("convgrad_sessions_expired_total", "Sessions whose lease ended.",
               sessions.expired());
  all->Counter("convgrad_session_repeats_total",
               "Repeated changes that were answered from the store.",
               sessions.repeats());
  all->Counter("convgrad_session_aborts_total", "Changes that were aborted.",
               sessions.aborts());
  all->Counter("convgrad_digest_hits_total",
               "Tensors put by their digest alone.", sessions.digests().hits());
  all->Counter("convgrad_digest_saved_bytes_total",
               "Bytes that weren't sent because of that.",
               sessions.digests().saved_bytes());
}

void AddCaches(const PlanCache& plans, const WeightCache& weights,
               Readings* all) {
  all->Gauge("convgrad_plan_cache_bytes", "Bytes that cached plans hold.",
             plans.bytes());
  all->Gauge("convgrad_plan_cache_plans", "Cached plans.", plans.plans());
  all->Gauge("convgrad_weight_cache_bytes",
             "Weights kept in the form that plans compute with.",
             weights.bytes());
  all->Counter("convgrad_weight_cache_hits_total",
               "Runs that found their weight so.", weights.hits());
  all->Counter("convgrad_weight_cache_misses_total",
               "Runs that left theirs for later ones.", weights.misses());
}

void AddProofs(const Proofs& proofs, Readings* all) {
  for (const ProvenBackend* backend : proofs.backends()) {
    const std::string name(backend->name());
    const ProofCounts counts = backend->counts();
    for (const auto& [outcome, count] : {std::pair("passed", counts.passed),
                                         {"failed", counts.failed},
                                         {"unmet", counts.unmet}}) {
      all->Counter("convgrad_proofs_total",
                   "Ways of computing that were held against the reference.",
                   count, {{"backend", name}, {"outcome", outcome}});
    }
    all->Gauge("convgrad_failed_proofs",
               "Families of operations that aren't computed as they should be.",
               counts.families, {{"backend", name}});
  }
}

}  // namespace

void AddClients(absl::Span<const ClientQuotas::Use> clients, Readings* all) {
  const auto add = [all](const ClientQuotas::Use& client) {
    const Readings::Labels labels = {{"client", client.client}};
    all->Gauge("convgrad_client_sessions", "Open sessions of one client.",
               client.sessions, labels);
    all->Gauge("convgrad_client_kept_bytes",
               "What one client's sessions keep, as its quota counts it.",
               client.kept_bytes, labels);
  };
  // A client may have the name "other" as well.
  ClientQuotas::Use others{"other"};
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

void AddDevice(const Readings::Labels& labels, const DeviceState& state,
               int queued, Readings* all) {
  const auto add = [&](const char* name, const char* help,
                       std::optional<double> value) {
    if (value) all->Gauge(name, help, *value, labels);
  };
  add("convgrad_device_up", "1 until an error takes the device out.",
      state.is_lost ? 0 : 1);
  add("convgrad_device_queue_depth",
      "Jobs waiting for a device of this backend: all share one queue.",
      queued);
  add("convgrad_device_memory_bytes", "The device's memory.",
      state.memory_bytes);
  add("convgrad_device_memory_used_bytes",
      "Of it, what is taken, by all processes.", state.memory_used_bytes);
  add("convgrad_device_utilization_ratio",
      "Share of the last moments in which the device computed.",
      state.utilization);
}

Readings ReadingsOf(const ComputeEngine& engine) {
  Readings all;
  AddQueues(engine.scheduler, &all);
  AddMemory(*engine.memory, engine.regions, &all);
  AddSessions(engine.sessions, &all);
  AddCaches(engine.plans, engine.weights, &all);
  AddClients(engine.sessions.ClientUses(), &all);
  engine.devices.ForEach(
      [&](const Backend& backend, int device, const DeviceState& state) {
        AddDevice({{"backend", std::string(backend.name())},
                   {"device", absl::StrCat(device)}},
                  state, engine.scheduler.queue_depth(backend), &all);
      });
  AddProofs(*engine.proofs, &all);
  if (engine.durable_sessions != nullptr) {
    engine.durable_sessions->AddReadings(&all);
  }
  return all;
}

}  // namespace convgrad
