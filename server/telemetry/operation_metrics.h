// The convgrad_* families that count operations, by op x backend x dtype x
// code.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

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
  // `backends` are the values of the label "backend", beside "none".
  OperationMetrics(prometheus::Registry* registry,
                   const std::vector<std::string>& backends);
  ~OperationMetrics();

  void OnOperation(const OpSample& sample);

 private:
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
  // Where a label set stands in `cells_`.
  struct Place {
    int op;
    int backend;
    int dtype;
    int code;
  };

  void AddPriorities(prometheus::Registry* registry);
  void OnPriority(const OpSample& sample);
  Place PlaceOf(const OpSample& sample) const;
  size_t IndexOf(const Place& place) const;
  // Returns the cell, made on first use: all of them would be some 70,000
  // lines of histograms that stay at 0.
  Cell& CellAt(const Place& place);
  Cell* MakeCell(const Place& place) const;

  std::vector<std::string> backends_;  // "none" first
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& queue_;
  prometheus::Family<prometheus::Histogram>& reorder_;
  prometheus::Family<prometheus::Histogram>& compute_;
  prometheus::Family<prometheus::Counter>& flops_;
  prometheus::Family<prometheus::Counter>& received_;
  prometheus::Family<prometheus::Counter>& sent_;
  prometheus::Family<prometheus::Counter>& copied_;
  // By backend; looked up, since a device's calls take long enough.
  prometheus::Family<prometheus::Counter>& transfer_seconds_;
  prometheus::Family<prometheus::Counter>& transferred_;
  prometheus::Counter* plan_hits_;
  prometheus::Counter* plan_misses_;
  prometheus::Counter* self_checks_passed_;
  prometheus::Counter* self_checks_failed_;
  // By reason's name; never changed after construction.
  std::vector<std::pair<std::string, prometheus::Counter*>> rejections_;
  // By name; never changed after construction.
  std::map<std::string, PriorityCell> priorities_;
  Mutex making_mutex_;
  // Null until first used; then owned, and never changed.
  std::vector<std::atomic<Cell*>> cells_;
};

}  // namespace convgrad
