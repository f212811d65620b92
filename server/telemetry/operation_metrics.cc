#include "server/telemetry/operation_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/data_type.h"
#include "backends/core/status.h"
#include "server/telemetry/rpc_metrics.h"

namespace convgrad {
namespace {

constexpr DataType kDataTypes[] = {DataType::kF32, DataType::kBF16,
                                   DataType::kF16};

// Buckets in seconds. They are coarser than LatencyBuckets, because each label
// set has three histograms, which are most lines of the page.
const prometheus::Histogram::BucketBoundaries& StageBuckets() {
  static const auto* const kBuckets =
      new prometheus::Histogram::BucketBoundaries{
          0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
          0.01,    0.02,   0.05,   0.1,    0.2,   0.5,   1,
          2,       5,      10,     20,     50,    100};
  return *kBuckets;
}

// Returns the label "dtype" of a sample.
std::string DtypeLabel(const OpSample& sample) {
  const auto is_it = [&](DataType dtype) {
    return NameOf(dtype) == sample.dtype;
  };
  const bool is_known =
      std::any_of(std::begin(kDataTypes), std::end(kDataTypes), is_it);
  return is_known ? sample.dtype : "none";
}

}  // namespace

OperationMetrics::OperationMetrics(prometheus::Registry* registry,
                                   const std::vector<std::string>& backends,
                                   const std::vector<std::string>& operations)
    : registry_(*registry), backends_(backends) {
  for (const char* outcome : {"passed", "failed"}) {
    self_checks_.Add({{"outcome", outcome}});
  }
  AddReasons();
  AddPriorities();
  OpSample sample;
  for (const std::string& operation : operations) {
    for (const std::string& backend : backends_) {
      for (DataType dtype : kDataTypes) {
        sample.operation = operation;
        sample.backend = backend;
        sample.dtype = std::string(NameOf(dtype));
        CellOf(sample);
      }
    }
  }
}

OperationMetrics::Counters& OperationMetrics::AddCounters(const char* name,
                                                          const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
}

OperationMetrics::Histograms& OperationMetrics::AddHistograms(
    const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
}

void OperationMetrics::AddReasons() {
  auto& rejections =
      AddCounters("convgrad_rejections_total",
                  "Operations that failed, by ErrorDetail.reason.");
  for (int i = 0; i <= static_cast<int>(Reason::kInternal); ++i) {
    const std::string reason(ReasonName(static_cast<Reason>(i)));
    rejections_[reason] = &rejections.Add({{"reason", reason}});
  }
}

void OperationMetrics::AddPriorities() {
  auto& queue = AddHistograms("convgrad_priority_queue_seconds",
                              "Waiting for memory, then for a worker.");
  auto& busy =
      AddCounters("convgrad_priority_busy_total",
                  "Operations that were refused, but may be tried again.");
  for (const char* name : {"batch", "interactive"}) {
    const prometheus::Labels labels = {{"priority", name}};
    priorities_[name] = {&queue.Add(labels, StageBuckets()), &busy.Add(labels)};
  }
}

std::string OperationMetrics::BackendLabel(const OpSample& sample) const {
  const auto found =
      std::find(backends_.begin(), backends_.end(), sample.backend);
  return found == backends_.end() ? "none" : *found;
}

OperationMetrics::Cell OperationMetrics::CellOf(const OpSample& sample) {
  const std::string code(CodeLabel(sample.code));
  const std::string backend = BackendLabel(sample);
  const std::string dtype = DtypeLabel(sample);
  const std::string key =
      absl::StrCat(sample.operation, " ", backend, " ", dtype, " ", code);
  const auto labels = [&] {
    return prometheus::Labels{{"op", sample.operation},
                              {"backend", backend},
                              {"dtype", dtype},
                              {"code", code}};
  };
  MutexLock lock(&mutex_);
  Cell& cell = cells_[key];
  if (cell.requests == nullptr) {
    cell = {
        &requests_.Add(labels()),
        &flops_.Add(labels()),
        &received_.Add(labels()),
        &sent_.Add(labels()),
        &copied_.Add(labels()),
        &reference_steps_.Add({{"op", sample.operation}, {"dtype", dtype}})};
  }
  if (sample.queued && cell.queue == nullptr) {
    cell.queue = &queue_.Add(labels(), StageBuckets());
  }
  if (sample.ran && cell.compute == nullptr) {
    cell.reorder = &reorder_.Add(labels(), StageBuckets());
    cell.compute = &compute_.Add(labels(), StageBuckets());
  }
  return cell;
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
  const Cell cell = CellOf(sample);
  cell.requests->Increment();
  if (sample.queued) {
    cell.queue->Observe(absl::ToDoubleSeconds(sample.times.Waiting()));
  }
  if (sample.ran) {
    cell.reorder->Observe(absl::ToDoubleSeconds(sample.times.reorder.busy));
    cell.compute->Observe(absl::ToDoubleSeconds(sample.times.compute.busy));
    cell.flops->Increment(static_cast<double>(sample.flops));
  }
  for (const auto& [step, time] : sample.steps) {
    step_seconds_
        .Add({{"backend", BackendLabel(sample)}, {"step", std::string(step)}})
        .Increment(absl::ToDoubleSeconds(time));
  }
  cell.received->Increment(static_cast<double>(sample.bytes_received));
  cell.sent->Increment(static_cast<double>(sample.bytes_sent));
  cell.copied->Increment(static_cast<double>(sample.bytes_copied));
  cell.reference_steps->Increment(static_cast<double>(sample.reference_steps));
  if (sample.bytes_transferred > 0) {
    const prometheus::Labels labels = {{"backend", BackendLabel(sample)}};
    transfer_seconds_.Add(labels).Increment(
        absl::ToDoubleSeconds(sample.times.transfer.busy));
    transferred_.Add(labels).Increment(
        static_cast<double>(sample.bytes_transferred));
  }
  if (sample.planned) {
    (sample.plan_cache_hit ? plan_hits_ : plan_misses_).Increment();
  }
  if (sample.self_check != SelfCheckOutcome::kNone) {
    const bool passed = sample.self_check == SelfCheckOutcome::kPassed;
    self_checks_.Add({{"outcome", passed ? "passed" : "failed"}}).Increment();
  }
  const auto rejection = rejections_.find(sample.reason);
  if (rejection != rejections_.end()) rejection->second->Increment();
}

}  // namespace convgrad
