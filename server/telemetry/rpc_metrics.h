// `RpcMetrics` fills the grpc_server_* families. They have the names of
// go-grpc-prometheus, because existing boards expect them.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace convgrad {

inline constexpr int kStatusCodes = 17;  // gRPC's codes, 0 to 16.

// Returns the name of `code` that boards expect, e.g. "OK", "InvalidArgument".
// Unknown codes are "Unknown".
absl::string_view CodeLabel(absl::StatusCode code);

// Returns the index of `code` in a table of kStatusCodes.
int CodeIndex(absl::StatusCode code);

// Returns the service that has `method`, or "unknown".
absl::string_view ServiceOf(absl::string_view method);

// `RpcMetrics` is thread-safe.
class RpcMetrics {
 public:
  // Registers every method with every code, at 0.
  explicit RpcMetrics(prometheus::Registry* registry);

  void OnStarted(absl::string_view method);
  void OnHandled(absl::string_view method, absl::StatusCode code,
                 absl::Duration elapsed);

 private:
  static constexpr int kMethods = 27;  // Including "unknown".
  struct Method {
    prometheus::Counter* started;
    std::array<prometheus::Counter*, kStatusCodes> handled;
    prometheus::Histogram* seconds;
  };
  std::array<Method, kMethods> methods_;
};

}  // namespace convgrad
