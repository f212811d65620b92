// The CPU backend on oneDNN 3.2 or later.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"

namespace convgrad {

// Returns the backend. Its plans run on the calling thread's OpenMP team, so
// use it from a fixed set of threads. Errors: kFailedPrecondition if the
// library is older than 3.2.
absl::StatusOr<std::unique_ptr<Backend>> MakeOnednnBackend();

// Likewise, but computes bf16 by the CPU's own instructions, or by the
// library's emulation of them, or only by way of f32, whatever is faster: for
// tests and measurements. Where the library has no bf16 at all, f32 it is.
absl::StatusOr<std::unique_ptr<Backend>> MakeOnednnBackend(bool native_bf16);

}  // namespace convgrad
