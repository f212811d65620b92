// Converts CUDA's errors to absl::Status.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace convgrad::cuda {

// Returns whether all later calls on the device will fail: its memory is lost,
// and only a new process can use it again.
bool IsSticky(cudaError_t error);

// Returns the status for `error`, naming `what`.
// Errors: kResourceExhausted if the device's or pinned memory ran out,
// kUnavailable if the error is sticky, else kInternal.
absl::Status StatusOf(cudaError_t error, absl::string_view what);

}  // namespace convgrad::cuda
