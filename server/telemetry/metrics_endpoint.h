// The server's Prometheus metrics and the HTTP endpoint that serves them. Every
// family is described in server/telemetry/README.md.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// A PEM file that the server was told to use.
struct CertificateFile {
  std::string flag;  // which flag named it, without dashes
  std::string path;  // empty: none
};

struct MetricsOptions {
  // host:port of the endpoint /metrics, port 0 for any; "" serves nothing.
  std::string listen;
  // Values of the label "backend", beside "none".
  std::vector<std::string> backends;
  // Names of operations, whose series are there from the start.
  std::vector<std::string> operations;
  std::string version;
  // Read at each scrape, for when they expire.
  std::vector<CertificateFile> certificates;
  // Read at each scrape; thread-safe, and valid while the endpoint lives.
  std::function<ServerGauges()> gauges;
};

// Thread-safe.
class MetricsEndpoint {
 public:
  // Errors: kInvalidArgument if `options.listen` can't be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const MetricsOptions& options);
  virtual ~MetricsEndpoint() = default;

  // Lives as long as this.
  virtual OpObserver* observer() = 0;
  // The bound port, 0 if nothing is served.
  virtual int port() const = 0;
  // Returns what /metrics serves.
  virtual std::string Text() const = 0;
};

}  // namespace convgrad
