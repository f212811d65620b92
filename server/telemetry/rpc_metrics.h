// `RpcMetrics` fills the grpc_server_* families. go-grpc-prometheus has the
// same names, which existing boards expect.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace convgrad {

inline constexpr int kStatusCodes = 17;  // gRPC's, 0 to 16

// Returns the name of gRPC's numbering as boards expect it, e.g. "OK",
// "InvalidArgument". Codes beyond the list are "Unknown".
absl::string_view CodeLabel(absl::StatusCode code);

// Returns the index of `code` in a table of kStatusCodes.
int CodeIndex(absl::StatusCode code);

// Returns the service that has `method`, or "unknown".
absl::string_view ServiceOf(absl::string_view method);

// Latency buckets of gRFC A66, in seconds.
const prometheus::Histogram::BucketBoundaries& LatencyBuckets();

// Thread-safe.
class RpcMetrics {
 public:
  // Registers every method with every code, at 0.
  explicit RpcMetrics(prometheus::Registry* registry);

  void OnStarted(absl::string_view method);
  void OnHandled(absl::string_view method, absl::StatusCode code,
                 absl::Duration elapsed);

 private:
  static constexpr int kMethods = 24;  // with what isn't one of them
  struct Method {
    prometheus::Counter* started;
    std::array<prometheus::Counter*, kStatusCodes> handled;
    prometheus::Histogram* seconds;
  };
  std::array<Method, kMethods> methods_;
};

}  // namespace convgrad
