#include "server/telemetry/operation_metrics.h"

#include <algorithm>
#include <utility>

#include "backends/core/data_type.h"
#include "backends/core/status.h"
#include "server/telemetry/rpc_metrics.h"

namespace convgrad {
namespace {

constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward};
constexpr DataType kDataTypes[] = {DataType::kF32, DataType::kBF16,
                                   DataType::kF16};
constexpr int kOps = 2;
constexpr int kDtypeLabels = 4;  // "none" first

prometheus::Family<prometheus::Counter>& AddCounters(
    prometheus::Registry* registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

prometheus::Family<prometheus::Histogram>& AddHistograms(
    prometheus::Registry* registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
}

std::string DtypeLabel(int index) {
  return index == 0 ? "none" : std::string(NameOf(kDataTypes[index - 1]));
}

int DtypeIndex(absl::string_view name) {
  for (int i = 1; i < kDtypeLabels; ++i) {
    if (NameOf(kDataTypes[i - 1]) == name) return i;
  }
  return 0;
}

}  // namespace

OperationMetrics::OperationMetrics(prometheus::Registry* registry,
                                   const std::vector<std::string>& backends)
    : backends_({"none"}),
      requests_(AddCounters(registry, "convgrad_requests_total",
                            "Operations that ended.")),
      queue_(AddHistograms(registry, "convgrad_queue_seconds",
                           "Waiting for memory, then for a worker.")),
      reorder_(AddHistograms(registry, "convgrad_reorder_seconds",
                             "Layout and dtype changes, masks, epilogues.")),
      compute_(AddHistograms(registry, "convgrad_compute_seconds",
                             "The library's arithmetic.")),
      flops_(AddCounters(registry, "convgrad_flops_total",
                         "2 x multiply-adds, padded windows counted.")),
      received_(AddCounters(registry, "convgrad_received_bytes_total",
                            "Payload of requests, and operands in regions.")),
      sent_(AddCounters(registry, "convgrad_sent_bytes_total",
                        "Payload of responses, and results in regions.")),
      copied_(
          AddCounters(registry, "convgrad_copied_bytes_total",
                      "Payload copied between wire or regions and buffers.")),
      transfer_seconds_(
          AddCounters(registry, "convgrad_transfer_seconds_total",
                      "Between host and device, not hidden by compute.")),
      transferred_(AddCounters(registry, "convgrad_transferred_bytes_total",
                               "Bytes between host and device.")) {
  backends_.insert(backends_.end(), backends.begin(), backends.end());
  plan_hits_ = &AddCounters(registry, "convgrad_plan_cache_hits_total",
                            "Operations whose plan was there.")
                    .Add({});
  plan_misses_ = &AddCounters(registry, "convgrad_plan_cache_misses_total",
                              "Operations whose plan had to be made.")
                      .Add({});
  auto& self_checks =
      AddCounters(registry, "convgrad_self_checks_total",
                  "Operations whose results were checked, by outcome.");
  self_checks_passed_ = &self_checks.Add({{"outcome", "passed"}});
  self_checks_failed_ = &self_checks.Add({{"outcome", "failed"}});
  auto& rejections =
      AddCounters(registry, "convgrad_rejections_total",
                  "Operations that failed, by ErrorDetail.reason.");
  for (int i = 0; i <= static_cast<int>(Reason::kInternal); ++i) {
    std::string reason(ReasonName(static_cast<Reason>(i)));
    auto& counter = rejections.Add({{"reason", reason}});
    rejections_.emplace_back(std::move(reason), &counter);
  }
  AddPriorities(registry);
  cells_ = std::vector<std::atomic<Cell*>>(kOps * backends_.size() *
                                           kDtypeLabels * kStatusCodes);
  // The successes are there from the start, so that a rate sees the first one.
  for (int op = 0; op < kOps; ++op) {
    for (int backend = 1; backend < static_cast<int>(backends_.size());
         ++backend) {
      for (int dtype = 1; dtype < kDtypeLabels; ++dtype) {
        CellAt({op, backend, dtype, 0});
      }
    }
  }
}

void OperationMetrics::AddPriorities(prometheus::Registry* registry) {
  auto& queue = AddHistograms(registry, "convgrad_priority_queue_seconds",
                              "Waiting for memory, then for a worker.");
  auto& busy =
      AddCounters(registry, "convgrad_priority_busy_total",
                  "Operations that were refused, but may be tried again.");
  for (const char* name : {"batch", "interactive"}) {
    const prometheus::Labels labels = {{"priority", name}};
    priorities_[name] = {&queue.Add(labels, LatencyBuckets()),
                         &busy.Add(labels)};
  }
}

OperationMetrics::~OperationMetrics() {
  for (std::atomic<Cell*>& cell : cells_) delete cell.load();
}

OperationMetrics::Place OperationMetrics::PlaceOf(
    const OpSample& sample) const {
  const auto backend =
      std::find(backends_.begin(), backends_.end(), sample.backend);
  return {static_cast<int>(sample.direction),
          backend == backends_.end()
              ? 0
              : static_cast<int>(backend - backends_.begin()),
          DtypeIndex(sample.dtype), CodeIndex(sample.code)};
}

size_t OperationMetrics::IndexOf(const Place& place) const {
  return ((place.op * backends_.size() + place.backend) * kDtypeLabels +
          place.dtype) *
             kStatusCodes +
         place.code;
}

OperationMetrics::Cell& OperationMetrics::CellAt(const Place& place) {
  std::atomic<Cell*>& slot = cells_[IndexOf(place)];
  Cell* cell = slot.load(std::memory_order_acquire);
  if (cell != nullptr) return *cell;
  MutexLock lock(&making_mutex_);
  cell = slot.load(std::memory_order_acquire);
  if (cell == nullptr) {
    cell = MakeCell(place);
    slot.store(cell, std::memory_order_release);
  }
  return *cell;
}

OperationMetrics::Cell* OperationMetrics::MakeCell(const Place& place) const {
  const prometheus::Labels labels = {
      {"op", std::string(NameOf(kDirections[place.op]))},
      {"backend", backends_[place.backend]},
      {"dtype", DtypeLabel(place.dtype)},
      {"code",
       std::string(CodeLabel(static_cast<absl::StatusCode>(place.code)))}};
  return new Cell{&requests_.Add(labels),
                  &queue_.Add(labels, LatencyBuckets()),
                  &reorder_.Add(labels, LatencyBuckets()),
                  &compute_.Add(labels, LatencyBuckets()),
                  &flops_.Add(labels),
                  &received_.Add(labels),
                  &sent_.Add(labels),
                  &copied_.Add(labels)};
}

void OperationMetrics::OnPriority(const OpSample& sample) {
  const auto found = priorities_.find(sample.priority);
  if (found == priorities_.end()) return;
  if (sample.queued) {
    found->second.queue->Observe(absl::ToDoubleSeconds(sample.times.Waiting()));
  }
  if (sample.reason == ReasonName(Reason::kBusy)) {
    found->second.busy->Increment();
  }
}

void OperationMetrics::OnOperation(const OpSample& sample) {
  OnPriority(sample);
  const Place place = PlaceOf(sample);
  Cell& cell = CellAt(place);
  cell.requests->Increment();
  if (sample.queued) {
    cell.queue->Observe(absl::ToDoubleSeconds(sample.times.Waiting()));
  }
  if (sample.ran) {
    cell.reorder->Observe(absl::ToDoubleSeconds(sample.times.reorder.busy));
    cell.compute->Observe(absl::ToDoubleSeconds(sample.times.compute.busy));
    cell.flops->Increment(static_cast<double>(sample.flops));
  }
  cell.received->Increment(static_cast<double>(sample.bytes_received));
  cell.sent->Increment(static_cast<double>(sample.bytes_sent));
  cell.copied->Increment(static_cast<double>(sample.bytes_copied));
  if (sample.bytes_transferred > 0) {
    const prometheus::Labels labels = {{"backend", backends_[place.backend]}};
    transfer_seconds_.Add(labels).Increment(
        absl::ToDoubleSeconds(sample.times.transfer.busy));
    transferred_.Add(labels).Increment(
        static_cast<double>(sample.bytes_transferred));
  }
  if (sample.planned) {
    (sample.plan_cache_hit ? plan_hits_ : plan_misses_)->Increment();
  }
  if (sample.self_check == SelfCheckOutcome::kPassed) {
    self_checks_passed_->Increment();
  } else if (sample.self_check == SelfCheckOutcome::kFailed) {
    self_checks_failed_->Increment();
  }
  for (auto& [reason, counter] : rejections_) {
    if (reason == sample.reason) counter->Increment();
  }
}

}  // namespace convgrad
