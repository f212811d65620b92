// `RunSelfTest` runs the self-test of convgrad-server --selftest.
#pragma once

#include <ostream>

#include "absl/status/statusor.h"
#include "server/flags/config.h"

namespace convgrad {

// Proves the backends of `config` on the cores and with the threads of a
// worker. Writes a table to `out`, with a row for each family of operations and
// a column for each dtype. Returns whether every family is computed correctly
// without a remedy. Requires: WithDefaults.
// Errors: kInvalidArgument for an invalid flag.
absl::StatusOr<bool> RunSelfTest(const Config& config, std::ostream& out);

}  // namespace convgrad
