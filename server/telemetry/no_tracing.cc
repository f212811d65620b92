// Replaces otlp_tracing.cc if opentelemetry-cpp isn't installed.
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "server/telemetry/tracing.h"

namespace convgrad {

absl::StatusOr<std::unique_ptr<Tracer>> StartTracing(
    const std::string& endpoint, const std::string& /*version*/) {
  return FailedPrecondition(
      Reason::kUnsupported, "--otlp_endpoint", endpoint,
      "nothing: this server was built without opentelemetry-cpp");
}

}  // namespace convgrad
