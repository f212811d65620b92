// Between CUDA's errors and ours.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace convgrad::cuda {

// Returns whether every later call on the device will fail, too: what it held
// is lost, and only a new process can use it again.
bool IsSticky(cudaError_t error);

// Errors: kResourceExhausted if the device's or pinned memory ran out,
// kUnavailable if the error is sticky, else kInternal; naming `what`.
absl::Status StatusOf(cudaError_t error, absl::string_view what);

}  // namespace convgrad::cuda
