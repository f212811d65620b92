// `RpcMetrics` fills the grpc_server_* families. They have the names of
// go-grpc-prometheus, because existing boards expect them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/telemetry/observer.h"

namespace convgrad {

inline constexpr int kStatusCodes = 17;  // gRPC's codes, 0 to 16.

// Returns the name of `code` that boards expect, e.g. "OK", "InvalidArgument".
// Unknown codes are "Unknown".
absl::string_view CodeLabel(absl::StatusCode code);

// Returns the index of `code` in a table of kStatusCodes.
int CodeIndex(absl::StatusCode code);

// `RpcMetrics` is thread-safe.
class RpcMetrics {
 public:
  // Registers each of `methods` with every code, at 0. All other methods count
  // as "unknown".
  RpcMetrics(prometheus::Registry* registry,
             std::vector<MeasuredMethod> methods);

  void OnStarted(absl::string_view method);
  void OnHandled(absl::string_view method, absl::StatusCode code,
                 absl::Duration elapsed);

 private:
  // The series of one method.
  struct Series {
    prometheus::Counter* started;
    std::array<prometheus::Counter*, kStatusCodes> handled;
    prometheus::Histogram* seconds;
  };

  Series& SeriesOf(absl::string_view method);

  // By method; constant after construction.
  absl::flat_hash_map<std::string, Series> series_;
};

}  // namespace convgrad
