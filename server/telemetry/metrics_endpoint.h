// `MetricsEndpoint` collects the server's Prometheus metrics and serves them by
// HTTP. server/telemetry/README.md describes every family.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/telemetry/observer.h"
#include "server/telemetry/readings.h"

namespace convgrad {

// The server's copy of a PEM file that a flag names.
struct CertificateFile {
  std::string flag;  // The flag, without dashes.
  std::string path;  // Empty: no file.
};

struct MetricsOptions {
  // host:port of the endpoint /metrics; port 0 for any port; "": no endpoint.
  std::string listen;
  // Methods whose series exist from the start.
  std::vector<MeasuredMethod> methods;
  // Values of the label "backend", beside "none".
  std::vector<std::string> backends;
  // Names of operations whose series exist from the start.
  std::vector<std::string> operations;
  std::string version;
  // Read at each scrape for their expiry.
  std::vector<CertificateFile> certificates;
  // Called at each scrape. Requires: thread-safe, and valid as long as the
  // endpoint.
  std::function<Readings()> gauges;
};

// `MetricsEndpoint` is thread-safe.
class MetricsEndpoint {
 public:
  // Starts the endpoint.
  // Errors: kInvalidArgument if `options.listen` can't be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const MetricsOptions& options);
  virtual ~MetricsEndpoint() = default;

  // Returns the observer that fills the metrics; valid as long as this.
  virtual OpObserver* observer() = 0;
  // The bound port; 0 if there is no endpoint.
  virtual int port() const = 0;
  // Returns the text of /metrics.
  virtual std::string Text() const = 0;
};

}  // namespace convgrad
