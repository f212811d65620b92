// `OperationMetrics` fills the convgrad_* families that count operations by op,
// backend, dtype and code.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "backends/core/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// `OperationMetrics` is thread-safe.
class OperationMetrics {
 public:
  // `backends` are the values of the label "backend", beside "none". The
  // counters of successful `operations` exist from the start, so that a rate
  // sees the first one.
  OperationMetrics(prometheus::Registry* registry,
                   const std::vector<std::string>& backends,
                   const std::vector<std::string>& operations);

  void OnOperation(const OpSample& sample);

 private:
  using Counters = prometheus::Family<prometheus::Counter>;
  using Histograms = prometheus::Family<prometheus::Histogram>;
  // The series of one label set.
  struct Cell {
    prometheus::Counter* requests = nullptr;
    prometheus::Counter* flops = nullptr;
    prometheus::Counter* received = nullptr;
    prometheus::Counter* sent = nullptr;
    prometheus::Counter* copied = nullptr;
    prometheus::Counter* reference_steps = nullptr;  // by op and dtype
    // Null before the first sample with such times.
    prometheus::Histogram* queue = nullptr;
    prometheus::Histogram* reorder = nullptr;
    prometheus::Histogram* compute = nullptr;
  };

  // The series of one priority.
  struct PriorityCell {
    prometheus::Histogram* queue;
    prometheus::Counter* busy;
  };

  Counters& AddCounters(const char* name, const char* help);
  Histograms& AddHistograms(const char* name, const char* help);
  void AddReasons();
  void AddPriorities();
  void OnPriority(const OpSample& sample);
  // Returns the label "backend" of a sample.
  std::string BackendLabel(const OpSample& sample) const;
  // Returns the series of a sample, made on first use. A histogram is made with
  // its first counted time, because histograms are most lines of the page.
  Cell CellOf(const OpSample& sample);

  prometheus::Registry& registry_;
  const std::vector<std::string> backends_;
  Counters& requests_ =
      AddCounters("convgrad_requests_total", "Operations that ended.");
  Histograms& queue_ = AddHistograms("convgrad_queue_seconds",
                                     "Waiting for memory, then for a worker.");
  Histograms& reorder_ =
      AddHistograms("convgrad_reorder_seconds",
                    "Layout and dtype changes, masks, epilogues.");
  Histograms& compute_ =
      AddHistograms("convgrad_compute_seconds", "The library's arithmetic.");
  Counters& flops_ = AddCounters("convgrad_flops_total",
                                 "2 x multiply-adds, padded windows counted.");
  Counters& received_ =
      AddCounters("convgrad_received_bytes_total",
                  "Payload of requests, and operands in regions.");
  Counters& sent_ =
      AddCounters("convgrad_sent_bytes_total",
                  "Payload of responses, and results in regions.");
  Counters& copied_ =
      AddCounters("convgrad_copied_bytes_total",
                  "Payload copied between wire or regions and buffers.");
  Counters& transfer_seconds_ =
      AddCounters("convgrad_transfer_seconds_total",
                  "Between host and device, not hidden by compute.");
  Counters& transferred_ = AddCounters("convgrad_transferred_bytes_total",
                                       "Bytes between host and device.");
  Counters& step_seconds_ =
      AddCounters("convgrad_network_step_seconds_total",
                  "Computing of networks, by kind of step.");
  Counters& reference_steps_ =
      AddCounters("convgrad_reference_steps_total",
                  "Steps on a library's reference implementation.");
  prometheus::Counter& plan_hits_ =
      AddCounters("convgrad_plan_cache_hits_total",
                  "Operations whose plan was there.")
          .Add({});
  prometheus::Counter& plan_misses_ =
      AddCounters("convgrad_plan_cache_misses_total",
                  "Operations whose plan had to be made.")
          .Add({});
  Counters& self_checks_ =
      AddCounters("convgrad_self_checks_total",
                  "Operations whose results were checked, by outcome.");
  // By reason and by priority; constant after construction.
  absl::flat_hash_map<std::string, prometheus::Counter*> rejections_;
  absl::flat_hash_map<std::string, PriorityCell> priorities_;
  Mutex mutex_;
  // By the values of the label set.
  absl::flat_hash_map<std::string, Cell> cells_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
