// `RunBackendCases` runs the published cases on a backend in this process,
// without server and gRPC, for machines that have neither, such as a bare GPU
// machine.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad::testing_support {

using BackendFactory = absl::StatusOr<std::unique_ptr<Backend>> (*)();

// Runs the cases and returns the exit status of main: 77 if the backend can't
// run, otherwise that of RunCaseFolder.
int RunBackendCases(BackendFactory make_backend, int argc, char** argv);

}  // namespace convgrad::testing_support
