// The GPU backend on cuDNN 9.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad {

// Returns the backend on the machine's devices, as far as they are of the same
// model as the first one. The driver and cuDNN are
// loaded here, not when the process starts. Errors: kFailedPrecondition if
// there is "no CUDA device", no cuDNN 9, or one that can't use the device.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend();

}  // namespace convgrad
