// `RunSelfTest` is what convgrad-server --selftest runs instead of a server.
#pragma once

#include <ostream>

#include "absl/status/statusor.h"
#include "server/flags/config.h"

namespace convgrad {

// Proves the backends of `config` on the cores and with the threads that a
// worker would have, and writes to `out` a table with a row for each family of
// operations and a column for each dtype. Returns whether all is computed right
// without any remedy.
// Requires: WithDefaults.
// Errors: kInvalidArgument for a bad flag.
absl::StatusOr<bool> RunSelfTest(const Config& config, std::ostream& out);

}  // namespace convgrad
