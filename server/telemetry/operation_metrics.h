// The convgrad_* families that count operations, by op x backend x dtype x
// code.
#pragma once

#include <memory>
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

// Thread-safe.
class OperationMetrics {
 public:
  // `backends` are the values of the label "backend", beside "none". The series
  // of successes of `operations` are there from the start, so that a rate sees
  // the first one.
  OperationMetrics(prometheus::Registry* registry,
                   const std::vector<std::string>& backends,
                   const std::vector<std::string>& operations);

  void OnOperation(const OpSample& sample);

 private:
  using Counters = prometheus::Family<prometheus::Counter>;
  using Histograms = prometheus::Family<prometheus::Histogram>;
  // The series of one label set.
  struct Cell {
    prometheus::Counter* requests;
    prometheus::Histogram* queue;
    prometheus::Histogram* reorder;
    prometheus::Histogram* compute;
    prometheus::Counter* flops;
    prometheus::Counter* received;
    prometheus::Counter* sent;
    prometheus::Counter* copied;
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
  // Returns the cell of a label set, made on first use: all of them would be
  // some 70,000 lines of histograms that stay at 0.
  const Cell& CellOf(const OpSample& sample);

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
  prometheus::Counter& plan_hits_;
  prometheus::Counter& plan_misses_;
  Counters& self_checks_;
  // By reason, and by priority; never changed after construction.
  absl::flat_hash_map<std::string, prometheus::Counter*> rejections_;
  absl::flat_hash_map<std::string, PriorityCell> priorities_;
  Mutex mutex_;
  // By the label set's values.
  absl::flat_hash_map<std::string, std::unique_ptr<const Cell>> cells_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
