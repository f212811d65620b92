// Finds the servers that a client's address stands for, and the one that has a
// session. Internal to the client.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/client_options.h"

namespace convgrad {

// Returns options for each server in `options.server`, one server in each. A
// host name with several addresses is replaced by these, and their certificates
// are checked by the name. "localhost" stays, because a tunnel may be behind
// it. Asks DNS, and blocks until it answers. Thread-safe.
std::vector<ClientOptions> ReplicasOf(const ClientOptions& options);

// Calls `ask(replica, its deadline)`, which asks one replica for a session,
// until one has it. Asks several replicas with a short timeout first, so that
// an unreachable one delays no other. Then asks those again that it couldn't
// reach, until `deadline`. Blocks. Thread-safe.
// Errors: kNotFound if none has it; that of a replica if it is unknown whether
// it has it; any other error of `ask`.
absl::Status AskForSession(
    std::vector<ClientOptions> replicas, absl::Time deadline,
    absl::FunctionRef<absl::Status(const ClientOptions&, absl::Time)> ask);

}  // namespace convgrad
