// `OpObserver` receives reports about calls. The reporting code knows nothing
// of Prometheus.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "backends/core/device.h"
#include "backends/core/steady_now.h"

namespace convgrad {

// The time of one stage of a call. A stream enters a stage several times
// between `begin` and `end`; `busy` is the sum.
struct StageTime {
  absl::Time begin = absl::InfiniteFuture();
  absl::Time end = absl::InfinitePast();
  absl::Duration busy;

  void Add(absl::Time from, absl::Time to) {
    begin = std::min(begin, from);
    end = std::max(end, to);
    busy += to - from;
  }
  // Returns an object that adds the time until its destruction.
  auto Measure() {
    return absl::Cleanup(
        [this, start = SteadyNow()] { Add(start, SteadyNow()); });
  }
  bool reached() const { return begin <= end; }
};

// The times of all stages of one call.
struct StageTimes {
  StageTime admission;  // The wait for memory.
  StageTime receive;
  StageTime decode;
  StageTime queue;  // The wait for a worker.
  StageTime plan;
  StageTime reorder;
  StageTime compute;
  StageTime transfer;  // To and from a device, not hidden by compute.
  StageTime encode;
  absl::Duration total;

  absl::Duration Waiting() const { return admission.busy + queue.busy; }
};

enum class SelfCheckOutcome { kNone, kPassed, kFailed };

// One ended call of a compute method, whatever its status. Reported exactly
// once per call.
struct OpSample {
  std::string operation;  // Operation::name().
  std::string backend;    // "" if none was chosen.
  std::string dtype;      // Of the operands; "" if unknown.
  std::string priority;   // "batch" or "interactive".
  std::string session;    // The session's label in spans; "" if none.
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string reason;  // ReasonName of the server's errors; "" otherwise.
  StageTimes times;
  bool queued = false;  // times.Waiting() counts.
  bool ran = false;     // times.reorder, times.compute and flops count.
  int64_t flops = 0;
  int64_t bytes_received = 0;     // Payload, and operands in regions.
  int64_t bytes_sent = 0;         // Payload, and results in regions.
  int64_t bytes_copied = 0;       // Between wire or regions and buffers.
  int64_t bytes_transferred = 0;  // Between host and device.
  bool planned = false;           // A plan was looked up.
  bool plan_cache_hit = false;
  SelfCheckOutcome self_check = SelfCheckOutcome::kNone;
  // For a network: compute time by kind of step.
  std::map<absl::string_view, absl::Duration> steps;
  // Steps on a library's reference implementation.
  int64_t reference_steps = 0;
};

// A method, in the words of go-grpc-prometheus.
struct MeasuredMethod {
  absl::string_view name;     // "ConvForward"
  absl::string_view type;     // "unary"
  absl::string_view service;  // "convgrad.v1.ConvGrad"
};

// `OpObserver` implementations are thread-safe and fast, and can't fail.
class OpObserver {
 public:
  virtual ~OpObserver() = default;

  // A call of `method` ("ConvForward", "ConvBackwardStream",
  // "GetCapabilities"...) arrived.
  virtual void OnStarted(absl::string_view method) = 0;
  // The call's final status was handed to gRPC, `elapsed` after OnStarted.
  virtual void OnHandled(absl::string_view method, absl::StatusCode code,
                         absl::Duration elapsed) = 0;
  // A compute call's work ended: with a result, a refusal or a failure.
  virtual void OnOperation(const OpSample& sample) = 0;
};

}  // namespace convgrad
