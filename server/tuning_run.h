// What convgrad-server --tune does instead of serving.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/config.h"

namespace convgrad {

// Times the problems of a file, one problem string a line, on the cores and
// with the threads that a worker of `config` would have, and writes what was
// fastest, and on what, to config.plan_file, which a server then loads. Logs
// its progress. Requires: WithDefaults. Errors: kInvalidArgument for a bad
// flag, file or problem; kInternal.
absl::Status RunTuning(const Config& config, const std::string& problems_path);

}  // namespace convgrad
