// `ServerActivity` summarizes what a server did between two scrapes of its
// metrics (server/telemetry/README.md).
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/command_line/activity/metrics_text.h"

namespace convgrad {

// One method's calls. Units: calls/s; seconds, NaN if there was no call.
struct MethodActivity {
  std::string method;
  double rate = 0, error_rate = 0;
  double p50 = 0, p99 = 0;
};

// Operations of one kind. Units: as above.
struct OperationActivity {
  std::string op, backend, dtype;
  double rate = 0;
  double gflops_per_second = 0;
  double queue_p99 = 0;
  double compute_p50 = 0, compute_p99 = 0;
};

// Steps of networks of one kind.
struct StepActivity {
  std::string step, backend;
  double busy = 0;  // seconds of computing per second
};

struct ServerActivity {
  absl::Duration elapsed;
  // Values at the second scrape.
  double queued = 0, running = 0, waiting_for_memory = 0;
  double memory_bytes = 0, memory_capacity_bytes = 0;
  double sessions = 0, kept_tensors = 0, kept_programs = 0, kept_tapes = 0;
  double kept_tape_bytes = 0, kept_bytes = 0, kept_capacity_bytes = 0;
  double plans = 0, plan_bytes = 0;
  // Share of operations whose plan was in the cache; NaN if there was none.
  double plan_hits = 0;
  double rejection_rate = 0;
  double received_rate = 0, sent_rate = 0;    // bytes/s
  std::vector<MethodActivity> methods;        // those ever called
  std::vector<OperationActivity> operations;  // those ever run
  std::vector<StepActivity> steps;            // those ever run, busiest first
};

// Requires: elapsed > 0. Counts from 0 if the server was restarted in between.
ServerActivity ActivityBetween(const MetricsText& before,
                               const MetricsText& after,
                               absl::Duration elapsed);

}  // namespace convgrad
