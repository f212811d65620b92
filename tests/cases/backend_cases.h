// The published cases, asked of a backend in this process: no server, no gRPC.
// Where nothing else is, as on a bare GPU machine.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad::testing_support {

using BackendFactory = absl::StatusOr<std::unique_ptr<Backend>> (*)();

// What such a program's main returns: 77 where the backend can't run, else as
// RunCaseFolder.
int RunBackendCases(BackendFactory make_backend, int argc, char** argv);

}  // namespace convgrad::testing_support
