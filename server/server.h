// `Server` is a whole server as one object, from its sockets to the backends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/registry.h"
#include "server/flags/config.h"
#include "server/telemetry/readings.h"

namespace convgrad {

// Returns the server's version, e.g. "0.1.0".
std::string Version();

// `Server` is thread-safe.
class Server {
 public:
  // Starts to listen and serves. WithDefaults computes the values that `config`
  // leaves unset.
  // Errors: kInvalidArgument for an invalid or unusable flag.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const Config& config,
      std::vector<RegisteredBackend> backends = MakeBackends());

  // Stops at once: running operations finish, all other calls are cancelled.
  virtual ~Server() = default;

  // Reports NOT_SERVING, waits drain_delay, refuses new calls, and gives
  // accepted calls drain_timeout to finish. Then it writes durable sessions.
  // Returns whether no work is left and the drivers of devices answer; calls
  // that wait for their clients may be left. May be called once. If it returns
  // false, the destructor may block for ever.
  virtual bool Drain() = 0;
  // Returns whether Drain has written all changes of durable sessions.
  virtual bool is_saved() const = 0;

  // Applies the settings that can change while the server runs: the limits of a
  // client, and the content of the token file.
  // Errors: kInvalidArgument naming a flag; then nothing has changed.
  virtual absl::Status Reload(const Config& config) = 0;

  // The bound addresses, in the order of --listen, with port 0 resolved.
  virtual const std::vector<std::string>& addresses() const = 0;
  // The bound address of --health_listen; "" if there is none.
  virtual const std::string& health_address() const = 0;
  // The bound port of /metrics; 0 if there is none.
  virtual int metrics_port() const = 0;
  virtual const Config& config() const = 0;
  // The gauges and the text of /metrics.
  virtual Readings gauges() const = 0;
  virtual std::string MetricsText() const = 0;
};

}  // namespace convgrad
