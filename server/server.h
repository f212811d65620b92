// `Server` is a whole server as one object, from its sockets to the backends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/registry.h"
#include "server/flags/config.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Returns the server's version, e.g. "0.1.0".
std::string Version();

// Thread-safe.
class Server {
 public:
  // Listens and serves. `config` may leave open what WithDefaults works out.
  // Errors: kInvalidArgument for a bad or unusable flag.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const Config& config,
      std::vector<RegisteredBackend> backends = MakeBackends());

  // Stops at once: running operations finish, everything else is cancelled.
  virtual ~Server() = default;

  // Reports NOT_SERVING, waits drain_delay, refuses new calls, and gives the
  // accepted ones drain_timeout to finish. Returns whether no work is left;
  // calls that still wait for their clients may be. May be called once.
  virtual bool Drain() = 0;

  // Takes over what can change while calls come: limits of a client, and files
  // of tokens.
  // Errors: kInvalidArgument naming a flag; then nothing was changed.
  virtual absl::Status Reload(const Config& config) = 0;

  // The bound addresses, in the order of --listen, port 0 resolved.
  virtual const std::vector<std::string>& addresses() const = 0;
  // The bound address of --health_listen, "" without one.
  virtual const std::string& health_address() const = 0;
  // The bound port of /metrics, 0 if there is none.
  virtual int metrics_port() const = 0;
  virtual const Config& config() const = 0;
  // As /metrics shows them.
  virtual ServerGauges gauges() const = 0;
  virtual std::string MetricsText() const = 0;
};

}  // namespace convgrad
