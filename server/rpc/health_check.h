// `CheckHealth` asks a server at an address whether it is serving.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace convgrad {

// Asks grpc.health.v1.Health at `address`, an address of --listen: host:port,
// where a wildcard host stands for this one, or unix:path.
// Errors: kUnavailable if it doesn't answer within `timeout` or isn't serving.
absl::Status CheckHealth(const std::string& address, absl::Duration timeout);

}  // namespace convgrad
