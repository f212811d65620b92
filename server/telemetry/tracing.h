// Spans of calls, exported by OTLP.
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

// What is known of a call when it ends.
struct EndedCall {
  absl::string_view method;  // as OpObserver has it
  std::optional<TraceContext> caller;
  absl::Time arrival;
  absl::Time end;
  absl::Status status;
  // Null: the call computes nothing.
  const OpSample* operation = nullptr;
};

// Thread-safe.
class Tracer {
 public:
  virtual ~Tracer() = default;

  // Makes a span of the call, below its caller's if that has one, and below it
  // one of each stage. Only queues them. Returns the trace's id, 32 hex digits.
  virtual std::string Trace(const EndedCall& call) = 0;
};

// Returns one that exports to `endpoint`, http://host:port or
// https://host:port, as server `version`; deletion sends what is left, for some
// seconds at most. Errors: kFailedPrecondition if the server was built without
// opentelemetry-cpp.
absl::StatusOr<std::unique_ptr<Tracer>> StartTracing(
    const std::string& endpoint, const std::string& version);

}  // namespace convgrad
