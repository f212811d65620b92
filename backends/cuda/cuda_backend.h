// `MakeCudaBackend` makes the GPU backend, which uses cuDNN 9.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad {

// Returns the backend on the machine's first device and all devices of the same
// model. Loads the driver and cuDNN, which the process doesn't load at its
// start.
// Errors: kFailedPrecondition if there is "no CUDA device", no cuDNN 9, or one
// that can't use the device.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend();

}  // namespace convgrad
