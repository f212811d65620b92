// Finds the servers that a client's address stands for. Internal to the client.
#pragma once

#include <vector>

#include "client/cpp/client_options.h"

namespace convgrad {

// Returns options for each server in `options.server`, one server in each. A
// host name with several addresses is replaced by these, and their certificates
// are checked by the name. "localhost" stays, because a tunnel may be behind
// it. Asks DNS, and blocks until it answers. Thread-safe.
std::vector<ClientOptions> ReplicasOf(const ClientOptions& options);

}  // namespace convgrad
