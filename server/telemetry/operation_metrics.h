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

  void AddReasons(prometheus::Registry* registry);
  void AddPriorities(prometheus::Registry* registry);
  void OnPriority(const OpSample& sample);
  // Returns the label "backend" of a sample.
  std::string BackendLabel(const OpSample& sample) const;
  // Returns the series of a sample, made on first use. A histogram is made with
  // its first counted time, because histograms are most lines of the page.
  Cell CellOf(const OpSample& sample);

  const std::vector<std::string> backends_;
  Counters& requests_;
  Histograms& queue_;
  Histograms& reorder_;
  Histograms& compute_;
  Counters& flops_;
  Counters& received_;
  Counters& sent_;
  Counters& copied_;
  Counters& transfer_seconds_;
  Counters& transferred_;
  Counters& step_seconds_;
  Counters& reference_steps_;
  prometheus::Counter& plan_hits_;
  prometheus::Counter& plan_misses_;
  Counters& self_checks_;
  // By reason and by priority; constant after construction.
  absl::flat_hash_map<std::string, prometheus::Counter*> rejections_;
  absl::flat_hash_map<std::string, PriorityCell> priorities_;
  Mutex mutex_;
  // By the values of the label set.
  absl::flat_hash_map<std::string, Cell> cells_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
