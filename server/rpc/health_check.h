// `CheckHealth` asks a server at an address whether it is serving.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace convgrad {

// Calls grpc.health.v1.Health at `address`, which is an address of --listen:
// host:port, where a wildcard host stands for this machine, or unix:path.
// Blocks. Thread-safe.
// Errors: kUnavailable if the server doesn't answer within `timeout` or isn't
// serving.
absl::Status CheckHealth(const std::string& address, absl::Duration timeout);

}  // namespace convgrad
