// `Tracer` makes spans of calls and exports them by OTLP.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/telemetry/observer.h"
#include "server/telemetry/trace_context.h"

namespace convgrad {

// A call at its end.
struct EndedCall {
  absl::string_view service;  // E.g. "convgrad.v1.ConvGrad".
  absl::string_view method;   // As in OpObserver.
  std::optional<TraceContext> caller;
  absl::Time arrival;
  absl::Time end;
  absl::Status status;
  // Null if the call computes nothing.
  const OpSample* operation = nullptr;
};

// `Tracer` is thread-safe.
class Tracer {
 public:
  virtual ~Tracer() = default;

  // Makes a span of the call, as a child of its caller's span if there is one,
  // and a child span for each stage. Queues the spans and doesn't block.
  // Returns the trace's id, 32 hex digits.
  virtual std::string Trace(const EndedCall& call) = 0;
};

// Returns a tracer that exports to `endpoint`, http://host:port or
// https://host:port, as server `version`. Its destructor sends the remaining
// spans, which takes a few seconds at most.
// Errors: kFailedPrecondition if the server was built without
// opentelemetry-cpp.
absl::StatusOr<std::unique_ptr<Tracer>> StartTracing(
    const std::string& endpoint, const std::string& version);

}  // namespace convgrad
